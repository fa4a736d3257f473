"""Whether an image's source answers, asked before Volt sends hosts to it."""

from volt.errors import SourceUnreachable
from volt.transport import Portal, probe


def check_answers(portal: Portal, timeout: float) -> None:
    """Open a TCP connection to the portal; raise SourceUnreachable after ``timeout`` seconds."""
    try:
        probe.connect(portal, timeout)
    except OSError as err:
        raise SourceUnreachable(
            f"source {portal.ip} port {portal.port} does not answer ({err}): "
            "start its iSCSI target or correct the address"
        ) from err
