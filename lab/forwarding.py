"""Ways into a bed from this machine's own network."""

from pathlib import Path

from lab.network import Endpoint

LISTEN = "0A"


def forward_command(port: int, to: Endpoint, namespace: Path) -> list[str]:
    """Return the listener's argument list: each connection enters the namespace by itself."""
    inner = f"nsenter --net={namespace} socat STDIO TCP:{to[0]}:{to[1]}"
    return ["socat", f"TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr", f'EXEC:"{inner}"']


def listeners(table: str) -> set[int]:
    """Return the ports that /proc/net/tcp shows with a listener on 127.0.0.1."""
    rows = [line.split() for line in table.splitlines()[1:]]
    local = [row[1].split(":") for row in rows if row[3] == LISTEN]
    return {int(port, 16) for address, port in local if address == "0100007F"}


def listening(port: int) -> bool:
    """Tell whether a port of 127.0.0.1 has a listener, without connecting to it."""
    return port in listeners(Path("/proc/net/tcp").read_text())
