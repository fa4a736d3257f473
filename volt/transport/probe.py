"""Whether somebody answers where an image is served."""

import socket

from volt.transport.iscsi import Portal


def connect(portal: Portal, timeout: float) -> None:
    """Open a TCP connection and close it; raises OSError, after ``timeout`` seconds at most."""
    socket.create_connection((portal.ip, portal.port), timeout).close()
