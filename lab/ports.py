"""Ports of the loopback for servers that tests start."""

from ephemeral_port_reserve import reserve

ADDRESS = "127.0.0.1"


def free_port() -> int:
    """Return a port of the loopback that nobody else is given for a minute.

    Who just closes a port that the kernel chose shares it, one time in ten, with another test.
    """
    port: int = reserve(ADDRESS)
    return port
