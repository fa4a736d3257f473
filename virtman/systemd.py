"""What the service manager that started the agent is told: systemd's notification protocol."""

from __future__ import annotations

import logging
import os
import socket

LOG = logging.getLogger(__name__)


def tell(**variables: object) -> None:
    """Send variables such as ``READY=1``; do nothing if nobody asked for them.

    See sd_notify(3).
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # the kernel marks an abstract name by a zero byte
        address = "\0" + address[1:]
    message = "\n".join(f"{name}={value}" for name, value in variables.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
            end.sendto(message.encode(), address)
    except OSError as err:
        LOG.warning("the service manager does not listen at %s: %s", address, err)
