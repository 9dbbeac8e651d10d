"""A console in the browser, which looks at journals and changes nothing: `jlogtool console`."""

from __future__ import annotations

try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise ImportError("jlog.console needs starlette and uvicorn: pip install 'pyjlog[console]'") from error
