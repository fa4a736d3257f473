"""Device-mapper verbs.

Device nodes are made here, not by udev: a busy udev would otherwise sit between
a table and the next one (see the udev rules in ``etc/``).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import threading
import time

from virtman.privileged import context
from virtman.privileged.deadline import check_flushes, flush_in_time, interrupted_after
from virtman.privileged.libdm import Table, Task, Verb, ask

LOG = logging.getLogger(__name__)

# Devices that are being held, each by a thread of its own, and what guards their names.
_holding: set[str] = set()
_holds = threading.Condition()

PATIENCE = 10.0
"""Seconds that whoever uses a device is held back for I/O that is on its way to end."""


@context.entrypoint
def create(name: str, table: Table, read_only: bool, owner: int = 0) -> None:
    """Make a device with a live table.

    :param owner: number of the account that its node belongs to
    :raises OSError: EBUSY if the name is taken, EINVAL for a table that makes no sense, or why a
        device below cannot be opened; nothing is left then
    """
    # The library can do all three at once, but does not tell why it could not then. It also would
    # hold up whoever makes nodes, for as long as it takes to open what is below.
    with Task(Verb.CREATE, name) as task:
        task.run()
    try:
        _load(name, table, read_only)
        with Task(Verb.RESUME, name) as task:
            task.owner(owner)
            task.run_with_nodes()
    except OSError:
        with contextlib.suppress(OSError):
            _remove(name)
        raise


@context.entrypoint
def reload(
    name: str, table: Table, read_only: bool, flush: bool, freeze: bool, settle: str = ""
) -> None:
    """Swap a device's table in place; I/O waits for that time and sees no error.

    :param flush: wait for I/O in flight to end first, and only then load the table: a snapshot
        over another origin reads its exceptions as it is loaded, and would lack those that are
        made later. False where that I/O can only end after the swap (a multipath that queues
        because it has no path)
    :param freeze: have a file system that is mounted on the device settle before
    :param settle: path of a device that no later flush of this one gets to: what was written to it
        is on the disk before the table is loaded. Empty for none; only together with ``flush``
    :raises OSError: EINTR if I/O in flight did not end in time to be flushed, ETIMEDOUT if what
        was written did not get to the disk in what was left of that time; the device then goes on
        with the table it had. One that is not flushed is as it was if the table cannot be loaded,
        be it held back
    """
    if settle:
        check_flushes(settle)

    # one that is not flushed runs until its new table is there, or is held back by somebody else
    undo = _revert if flush else _clear
    try:
        if flush:
            end = time.monotonic() + PATIENCE
            _suspend_in_time(name, flush, freeze, PATIENCE)
            if settle:
                flush_in_time(settle, max(0.0, end - time.monotonic()))
        _load(name, table, read_only)
        if not flush:
            _await_held(name, PATIENCE)
    except OSError:
        undo(name)
        raise
    try:
        # what still runs is suspended, swapped and resumed by the kernel in one: whoever dies
        # here leaves nothing suspended
        _resume(name, flush, freeze)
    except OSError:
        _revert(name)
        raise


@context.entrypoint
def revert(name: str) -> None:
    """Let a device go on with the table it has, whatever swap was begun."""
    _revert(name)


@context.entrypoint
def suspend(name: str, flush: bool, freeze: bool, patience: float = PATIENCE) -> None:
    """Hold back a device's I/O until it is resumed or reloaded; see ``reload``.

    :param patience: seconds that I/O in flight has to end
    """
    _suspend_in_time(name, flush, freeze, patience)


@context.entrypoint
def hold(name: str) -> bool:
    """Begin to hold back a device's I/O until it is resumed; tell whether that was still to begin.

    What is submitted from now on waits. The device counts as suspended once what was submitted
    before has ended: the kernel waits for that, without a flush too, as a target has nothing to
    give back that it has passed on. A read whose parents are away may never end. So no thread of
    the verbs waits for it: they are few, and one of them has to bring the parents back.
    """
    with _holds:
        if name in _holding:
            return False
        threading.Thread(target=_hold, args=(name,), name=f"hold {name}", daemon=True).start()
        _holding.add(name)
    return True


@context.entrypoint
def holding() -> list[str]:
    """Return the names of devices that are being held, but for what was on its way before."""
    with _holds:
        return sorted(_holding)


@context.entrypoint
def resume(name: str) -> None:
    """Let a suspended device's I/O go on."""
    _resume(name)


def _hold(name: str) -> None:
    try:
        _suspend(name, True, False, math.inf)
    except OSError as err:
        LOG.warning("holding back I/O: %s", err)
    finally:
        with _holds:
            _holding.discard(name)
            _holds.notify_all()


def _suspend_in_time(name: str, flush: bool, freeze: bool, patience: float) -> None:
    _await_held(name, patience)
    _suspend(name, flush, freeze, patience)


def _await_held(name: str, patience: float) -> None:
    """Wait until a device is held back whose hold has begun, or raise OSError."""
    with _holds:
        # whoever comes second waits in the kernel for a lock, where nothing interrupts it
        if not _holds.wait_for(lambda: name not in _holding, min(patience, PATIENCE)):
            raise OSError(errno.EINTR, f"device mapper, {name}: it is being held back")


def _suspend(name: str, flush: bool, freeze: bool, patience: float) -> None:
    with Task(Verb.SUSPEND, name) as task:
        task.how_to_suspend(flush, freeze)
        with interrupted_after(patience):
            task.run()


def _resume(name: str, flush: bool = True, freeze: bool = False) -> None:
    with Task(Verb.RESUME, name) as task:
        task.how_to_suspend(flush, freeze)
        task.run_without_nodes()


def _load(name: str, table: Table, read_only: bool) -> None:
    with Task(Verb.RELOAD, name, read_only=read_only) as task:
        task.targets(table)
        task.run()


def _remove(name: str) -> None:
    with Task(Verb.REMOVE, name) as task:
        task.run_with_nodes()


def _revert(name: str) -> None:
    _clear(name)
    _resume(name)


def _clear(name: str) -> None:
    # else whoever resumes the device next would bring the new table in
    with Task(Verb.CLEAR, name) as task:
        task.run()


@context.entrypoint
def remove(name: str) -> None:
    """Remove a device.

    :raises OSError: EBUSY while it is open, ENXIO if there is none
    """
    _remove(name)


@context.entrypoint
def mend_node(name: str, owner: int = 0) -> None:
    """Make a device's node if it has none; take the node of a device that has gone.

    Whoever dies between a verb and its node leaves one of the two.

    :param owner: number of the account that the node belongs to
    """
    with Task(Verb.MKNODES, name) as task:
        task.run_with_nodes()
    if owner:
        with contextlib.suppress(FileNotFoundError):
            os.chown(f"/dev/mapper/{name}", owner, -1)


@context.entrypoint
def message(name: str, words: str) -> None:
    """Send a target its message, such as ``reinstate_path 8:0``."""
    ask(name, words)


@context.entrypoint
def table(name: str) -> Table:
    """Return the live table; empty if there is no such device."""
    try:
        return _rows(Verb.TABLE, name)
    except OSError as err:
        if err.errno == errno.ENXIO:
            return []
        raise


@context.entrypoint
def status(name: str) -> Table:
    """Return each target's status in place of its parameters."""
    return _rows(Verb.STATUS, name)


@context.entrypoint
def is_open(name: str) -> bool:
    """Tell whether somebody has a device open: a process, or a device that lies on it.

    :raises OSError: ENXIO if there is no such device
    """
    with Task(Verb.INFO, name) as task:
        task.run()
        return task.read_openers() > 0


@context.entrypoint
def statuses(names: list[str]) -> dict[str, Table]:
    """Return the same of many devices, by name; those that are not there are left out."""
    found = {}
    for name in names:
        try:
            found[name] = _rows(Verb.STATUS, name)
        except OSError as err:
            if err.errno != errno.ENXIO:
                raise
    return found


@context.entrypoint
def names() -> list[str]:
    """Names of all device-mapper devices of this node."""
    with Task(Verb.LIST, None) as task:
        task.run()
        return task.read_names()


def _rows(verb: Verb, name: str) -> Table:
    with Task(verb, name) as task:
        task.run()
        return task.read_table()
