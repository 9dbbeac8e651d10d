"""Celery without a server: `import jlog.celery`, and `broker_url = "jlog:///var/lib/app"`. Needs the extra pyjlog[celery]."""

from __future__ import annotations

try:
    from kombu.transport import TRANSPORT_ALIASES
except ImportError as error:
    raise ImportError(
        "jlog.celery needs Celery, or kombu alone, which is not installed: pip install 'pyjlog[celery]'"
    ) from error

__all__ = ["SCHEME"]

SCHEME = "jlog"

TRANSPORT_ALIASES[SCHEME] = "jlog.celery.transport:Transport"
