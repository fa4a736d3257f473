"""LIO target verbs: serve a block device, write-protected, and stop serving it."""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virtman.privileged import context
from virtman.privileged.command import run

_CONFIGFS = Path("/sys/kernel/config/target")
_DBROOT = Path("/etc/target")
_OPTIMAL_SECTORS = 256
_ENABLE_TRIES = 5
_ENABLE_PAUSE = 0.2
_SESSIONS = "fabric_statistics/iscsi_instance/sessions"
_END_PATIENCE = 30.0
_END_LOOK = 0.01
_LOGIN_PATIENCE = 2.0
_CONNECTIONS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
_SPARE = 65535
"""Number of a group of disks which nobody has: they are counted from 0."""


@context.entrypoint
def prepare() -> None:
    """Have done what the first disk that is served would wait for.

    :raises OSError: if LIO is not there
    """
    import rtslib_fb  # noqa: F401, PLC0415

    _prepare()
    # with the first one the kernel loads, one after the other, all that can stand behind a disk
    first = _CONFIGFS / f"core/fileio_{_SPARE}"
    first.mkdir(exist_ok=True)
    first.rmdir()


@context.entrypoint
def serve(name: str, device: str, size: int, target: str, lun: int, ip: str, port: int) -> None:
    """Serve ``device`` as a LUN of ``target`` on one portal, read-only for everyone.

    A new target lets nobody in until ``require`` has said what children must prove.

    The LUN is buffered (fileio): reads of several children for the same block meet in
    the page cache and become one read below.

    :param name: of the storage object; begins the disk's model name at the initiator
    :param size: in bytes; LIO asks a block device itself, but a file needs it
    :raises OSError: EIO with what LIO said; nothing of this LUN stays behind then
    """
    from rtslib_fb import FabricModule, FileIOStorageObject, RTSLibError  # noqa: PLC0415
    from rtslib_fb.target import LUN, TPG, NetworkPortal, Target  # noqa: PLC0415

    _prepare()
    try:
        storage = _retried(lambda: FileIOStorageObject(name, device, size, write_back=True))
        # The disk's model at the initiator is then the name, by which udev rules know it.
        storage.set_attribute("emulate_model_alias", 1)
        # What a child's kernel reads ahead follows from this; 8 MiB if left alone.
        storage.set_attribute("optimal_sectors", _OPTIMAL_SECTORS)
        # A reservation, which any child could make, would lock its siblings out.
        storage.set_attribute("emulate_pr", 0)
        group = TPG(Target(FabricModule("iscsi"), target), 1)
        for attribute, value in (
            ("authentication", 1),
            ("generate_node_acls", 1),
            ("cache_dynamic_acls", 1),
            ("demo_mode_write_protect", 1),
        ):
            group.set_attribute(attribute, value)
        LUN(group, lun, storage)
        NetworkPortal(group, ip, port)
        group.enable = True
    except (RTSLibError, OSError) as err:
        with contextlib.suppress(OSError, RTSLibError):
            _withdraw(name, target, lun)
        raise OSError(errno.EIO, f"LIO, {target}: {err}") from err


@context.entrypoint
def withdraw(name: str, target: str, lun: int) -> None:
    """Stop serving a LUN; the target goes with its last one. Gone already is fine.

    All sessions of the target end, whichever LUN they read; none does without that LUN.

    :raises OSError: EIO with what LIO said; EBUSY if sessions do not end: nothing but the target's
        being closed to all is changed then, and the same may be asked again
    """
    from rtslib_fb import RTSLibError  # noqa: PLC0415

    try:
        _withdraw(name, target, lun)
    except RTSLibError as err:
        raise OSError(errno.EIO, f"LIO, {target}: {err}") from err


@context.entrypoint
def serves(name: str, target: str, lun: int) -> bool:
    """Tell whether the LUN is there, complete, and its target enabled."""
    group = _group(target)
    links = list(group.glob(f"lun/lun_{lun}/*/udev_path")) if group.is_dir() else []
    mine = [link for link in links if link.parent.resolve().name == name]
    return bool(mine) and (group / "enable").read_text().strip() == "1"


@context.entrypoint
def require(target: str, user: str, secret: str) -> None:
    """Let only those log in to a target who know this; sessions that are open go on.

    :raises OSError: ENOENT if there is no such target
    """
    group = _group(target)
    for name, value in (("userid", user), ("password", secret)):
        file = group / "auth" / name
        file.chmod(0o600)  # the kernel shows it to everybody
        file.write_text(value)
    (group / "attrib/authentication").write_text("1")


@context.entrypoint
def sessions(target: str) -> list[str]:
    """Initiator names of those who are logged in now."""
    group = _group(target)
    if not (group / "dynamic_sessions").exists():
        return []
    return [name for name in (group / "dynamic_sessions").read_text().split("\0") if name.strip()]


def _prepare() -> None:
    """Tell LIO where to keep its state before a fabric is loaded, else rtslib refuses."""
    if (_CONFIGFS / "iscsi").is_dir():  # done before: a fabric is in use
        return
    run("modprobe", "target_core_mod")
    (_DBROOT / "pr").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # fabrics are loaded: somebody chose a folder already
        (_CONFIGFS / "dbroot").write_text(f"{_DBROOT}\n")
    run("modprobe", "iscsi_target_mod")
    (_CONFIGFS / "iscsi").mkdir(exist_ok=True)


def _retried(make: Callable[[], Any]) -> Any:
    """Call ``make`` again if LIO is not ready: seen as EAGAIN on a busy processor."""
    from rtslib_fb import RTSLibError  # noqa: PLC0415

    for attempt in range(_ENABLE_TRIES):
        try:
            return make()
        except (RTSLibError, OSError):
            if attempt == _ENABLE_TRIES - 1:
                raise
            time.sleep(_ENABLE_PAUSE)
    return None


def _withdraw(name: str, target: str, lun: int) -> None:
    from rtslib_fb import FabricModule, FileIOStorageObject, RTSLibNotInCFSError  # noqa: PLC0415
    from rtslib_fb.target import LUN, TPG, Target  # noqa: PLC0415

    if (_CONFIGFS / "iscsi" / target).is_dir():
        found = Target(FabricModule("iscsi"), target, mode="lookup")
        # not for a LUN that is not there: its sessions would end, and others' logins
        if (_group(target) / f"lun/lun_{lun}").is_dir():
            group = TPG(found, 1, mode="lookup")
            _await_logins(target)
            group.enable = False
            _await_end_of_sessions(target)
            LUN(group, lun).delete()
        if not any(_group(target).glob("lun/lun_*")):
            _await_logins(target)
            found.delete()
    if _CONFIGFS.is_dir():
        with contextlib.suppress(RTSLibNotInCFSError):
            FileIOStorageObject(name).delete()


def _await_logins(target: str) -> None:
    """Wait for those who are connected where a target is served and have not logged in yet.

    When it is disabled, or goes, the kernel interrupts the thread of its portal: the login that
    this is at, to whichever target, is cut off. open-iscsi waits on until its time is up.
    """
    ports = {int(one.name.rpartition(":")[2]) for one in (_group(target) / "np").glob("*:*")}
    deadline = time.monotonic() + _LOGIN_PATIENCE
    while _connected(ports) > _logged_in() and time.monotonic() < deadline:
        time.sleep(_END_LOOK)


def _connected(ports: set[int]) -> int:
    """Return how many connections others have to these ports."""
    rows = [
        line.split()
        for table in _CONNECTIONS
        if table.exists()  # a kernel may lack IPv6
        for line in table.read_text().splitlines()[1:]
    ]
    return sum(
        row[3] == _ESTABLISHED and int(row[1].rpartition(":")[2], 16) in ports for row in rows
    )


def _logged_in() -> int:
    """Return how many sessions there are, with all targets."""
    found = 0
    for sessions in (_CONFIGFS / "iscsi").glob(f"*/{_SESSIONS}"):
        with contextlib.suppress(OSError):  # it goes just now
            found += int(sessions.read_text())
    return found


def _await_end_of_sessions(target: str) -> None:
    """Wait until the kernel has let go of all sessions of a target that is disabled.

    Disabling it waits for their connections, and for no session that its initiator ends just then:
    a thread of each session's does the rest. It still needs the group, which LIO frees when it is
    told to, and the kernel panics.
    """
    sessions = _CONFIGFS / "iscsi" / target / _SESSIONS
    deadline = time.monotonic() + _END_PATIENCE
    while (left := int(sessions.read_text())) > 0:
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, f"LIO, {target}: {left} sessions have not ended")
        time.sleep(_END_LOOK)


def _group(target: str) -> Path:
    return _CONFIGFS / "iscsi" / target / "tpgt_1"
