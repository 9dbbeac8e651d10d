"""Tells the service manager that started this process how it is: systemd's protocol for units of Type=notify."""

from __future__ import annotations

import os
import socket

SOCKET = "NOTIFY_SOCKET"


def notify(state: str) -> None:
    """Sends "READY=1" or another state. Does nothing where no service manager wants to know."""
    address = os.environ.get(SOCKET, "")
    if address:
        if address.startswith("@"):  # a name that is not a file
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(state.encode(), address)
