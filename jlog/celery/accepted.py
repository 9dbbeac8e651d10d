"""Tells a message that Celery's pool works on from one that its worker has only fetched."""

from __future__ import annotations

from typing import Any

try:
    from celery import signals
except ImportError:  # kombu alone
    signals = None


def begin_accepted(channel_type: type) -> None:
    """From now on a message that came by a channel of this type is in work from the moment at which a process or thread of
    Celery's pool accepts its task: not while the task waits for its ETA, or for a process that is free."""

    def on_received(request: Any, **_: Any) -> None:
        message, accepted = request.message, request.on_accepted

        def on_accepted(pid: int, time_accepted: float) -> None:
            message.channel.begin(message.delivery_tag)
            accepted(pid, time_accepted)

        if isinstance(message.channel, channel_type):
            request.on_accepted = on_accepted

    if signals is not None:
        signals.task_received.connect(on_received, weak=False)
