"""iSCSI initiator verbs, through iscsiadm and without discovery."""

from __future__ import annotations

import contextlib

from virtman.privileged import context
from virtman.privileged.command import run

# A parent that died must be noticed in seconds: the defaults wait for two minutes. But LIO
# answers a ping only after the reads before it, which wait for the parent's own parents:
# pings that are too impatient would cut off a parent that is merely busy.
_SETTINGS = {
    "node.session.timeo.replacement_timeout": "2",
    "node.conn[0].timeo.noop_out_interval": "5",
    "node.conn[0].timeo.noop_out_timeout": "10",
    "node.conn[0].timeo.login_timeout": "5",
    "node.session.initial_login_retry_max": "1",
    "node.startup": "manual",
}


@context.entrypoint
def login(ip: str, port: int, target: str) -> None:
    """Open a session; the disk appears in sysfs a moment later.

    :raises OSError: with iscsiadm's words if the portal or the target does not answer
    """
    where = _where(ip, port, target)
    run("iscsiadm", *where, "-o", "new")
    settings = [word for key, value in _SETTINGS.items() for word in ("-n", key, "-v", value)]
    run("iscsiadm", *where, "-o", "update", *settings)
    try:
        run("iscsiadm", *where, "--login")
    except OSError:
        with contextlib.suppress(OSError):
            run("iscsiadm", *where, "-o", "delete")
        raise


@context.entrypoint
def logout(ip: str, port: int, target: str) -> None:
    """Close a session and forget the target."""
    where = _where(ip, port, target)
    run("iscsiadm", *where, "--logout")
    run("iscsiadm", *where, "-o", "delete")


def _where(ip: str, port: int, target: str) -> tuple[str, ...]:
    return ("-m", "node", "-T", target, "-p", f"{ip}:{port}")
