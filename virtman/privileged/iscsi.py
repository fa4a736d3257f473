"""iSCSI initiator verbs, through iscsiadm and without discovery."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from virtman.privileged import context
from virtman.privileged.command import run

# Debian's, and others': where open-iscsi keeps what it knows of targets, a file each.
_RECORDS = (Path("/etc/iscsi/nodes"), Path("/var/lib/iscsi/nodes"))
_REFUSED = re.compile(r"status 24\b|authorization failure")
# iscsiadm goes through the records of all targets, and fails if one of them goes just then, perhaps
# after it did what it was asked for: then there is a session already, or no session or record.
_RACED = "status 6:"
_DONE = {"--login": "status 15:", "--logout": "status 21:", "delete": "status 21:"}
_TRIES, _PAUSE = 20, 0.05

# A parent that died must be noticed in seconds: the defaults wait for two minutes. But LIO
# answers a ping only after the reads before it, which wait for the parent's own parents:
# pings that are too impatient would cut off a parent that is merely busy. So a ping a second
# is sent only to see whether the parent's kernel acknowledges it, which it does at once.
PATIENCE = 2
"""Seconds for which reads wait for a session that has lost its connection."""

_SETTINGS = {
    "node.session.timeo.replacement_timeout": str(PATIENCE),
    "node.conn[0].timeo.noop_out_interval": "1",
    "node.conn[0].timeo.noop_out_timeout": "30",
    "node.conn[0].timeo.login_timeout": "5",
    "node.session.initial_login_retry_max": "1",
    "node.startup": "manual",
    # else the kernel makes a disk of each stripe that a host exports, be it read from there or not
    "node.session.scan": "manual",
}
_CHAP_SETTINGS = {
    "node.session.auth.authmethod": "CHAP",
    # best first: the target takes the first that its kernel has
    "node.session.auth.chap_algs": "SHA256,SHA1,MD5",
}
_NO_CHAP_SETTINGS = {"node.session.auth.authmethod": "None"}
_AUTH = "node.session.auth."


@context.entrypoint
def login(ip: str, port: int, target: str, user: str, secret: str) -> None:
    """Open a session; disks appear once they are looked for: ``scan``.

    :param user: what to prove to the target that we know; empty for nothing
    :raises PermissionError: if the target does not know user or secret
    :raises OSError: with iscsiadm's words if the portal or the target does not answer
    """
    where = _where(ip, port, target)
    _run(*where, "-o", "new")
    _remember(ip, port, target, user, secret)
    try:
        _run(*where, "--login")
    except OSError as err:
        with contextlib.suppress(OSError):
            _run(*where, "-o", "delete")
        if _REFUSED.search(str(err)):
            raise PermissionError(errno.EACCES, f"{target}: wrong user or secret") from err
        raise


@context.entrypoint
def remember(ip: str, port: int, target: str, user: str, secret: str) -> None:
    """Have a session, when it is opened again, prove this. The one that is open goes on."""
    _remember(ip, port, target, user, secret)


@context.entrypoint
def proves(target: str, user: str, secret: str) -> bool:
    """Tell whether the sessions with a target prove this when their connection is opened again.

    open-iscsi does that by itself, with what it knew at the login.
    """
    for session in _sessions(target):
        with contextlib.suppress(OSError):  # it goes just now
            if [_shown(session / name) for name in ("username", "password")] != [user, secret]:
                return False
    return True


@context.entrypoint
def bear(target: str, seconds: int) -> None:
    """Set for how long reads wait for sessions with a target that have lost their connection.

    Once this has been set, what open-iscsi has to say of it counts no more for that session.
    """
    for session in _sessions(target):
        with contextlib.suppress(OSError):  # it goes just now
            (session / "recovery_tmo").write_text(str(seconds))


@context.entrypoint
def scan(target: str, lun: int) -> None:
    """Have the kernel look for a disk of the sessions with a target: it does not by itself."""
    for session in _sessions(target):
        host = next(one for one in session.resolve().parents if one.name.startswith("host"))
        with contextlib.suppress(FileNotFoundError):  # it goes just now
            (host / "scsi_host" / host.name / "scan").write_text(f"- - {lun}")


@context.entrypoint
def logout(ip: str, port: int, target: str) -> None:
    """Close a session and forget the target."""
    where = _where(ip, port, target)
    _run(*where, "--logout")
    _run(*where, "-o", "delete")


@context.entrypoint
def records() -> list[tuple[str, int, str]]:
    """Return the address, port and target of all that open-iscsi remembers, connected or not."""
    found = []
    for file in (file for folder in _RECORDS for file in folder.glob("*/[!.]*,*")):
        ip, port = file.name.split(",")[:2]
        found.append((ip, int(port), file.parent.name))
    return found


@context.entrypoint
def forget(ip: str, port: int, target: str) -> None:
    """Forget a target, and what was to be proved to it.

    A power cut may have left zeros in its record, which iscsiadm can neither read nor delete; it
    could not log in to that target again.
    """
    try:
        _run(*_where(ip, port, target), "-o", "delete")
    except OSError:
        found = _portal(ip, port, target)
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink()


def _run(*words: str) -> None:
    """Have iscsiadm do something, again if the record of another target went meanwhile."""
    done = _DONE.get(words[-1])
    for tried in range(_TRIES):
        try:
            run("iscsiadm", *words)
        except OSError as err:
            if _RACED in str(err) and tried < _TRIES - 1:
                time.sleep(_PAUSE)
                continue
            if not (tried and done and done in str(err)):
                raise
        return


def _sessions(target: str) -> Iterator[Path]:
    """Tell where the kernel shows its sessions with a target."""
    for session in Path("/sys/class/iscsi_session").glob("session*"):
        with contextlib.suppress(OSError):  # it goes just now
            if _shown(session / "targetname") == target:
                yield session


def _shown(attribute: Path) -> str:
    """Return what the kernel shows of a session, empty for what it has not."""
    text = attribute.read_text().rstrip("\n")
    return "" if text == "(null)" else text


def _where(ip: str, port: int, target: str) -> tuple[str, ...]:
    return ("-m", "node", "-T", target, "-p", f"{ip}:{port}")


def _remember(ip: str, port: int, target: str, user: str, secret: str) -> None:
    """Change open-iscsi's own record, whose form is that of its commands' options.

    Its command would take the secret as an argument, where every process can read it.
    """
    settings = {**_SETTINGS, **(_CHAP_SETTINGS if user else _NO_CHAP_SETTINGS)}
    if user:
        settings |= {f"{_AUTH}username": user, f"{_AUTH}password": secret}
    record = _record(ip, port, target)
    lines = record.read_text().splitlines()
    kept = [
        line
        for line in lines
        if line.split(" = ")[0] not in settings and not line.startswith((_AUTH, "#"))
    ]
    text = "\n".join(
        [lines[0], *kept, *(f"{key} = {value}" for key, value in settings.items()), lines[-1], ""]
    )
    part = record.with_name(f".{record.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    part.rename(record)


def _record(ip: str, port: int, target: str) -> Path:
    found = _portal(ip, port, target)
    return found / "default" if found.is_dir() else found


def _portal(ip: str, port: int, target: str) -> Path:
    for folder in _RECORDS:
        for found in (folder / target).glob(f"{ip},{port}*"):
            return found
    raise OSError(errno.ENOENT, f"open-iscsi has no record of {target} at {ip}:{port}")
