"""Device-mapper verbs, through libdevmapper: no process is started.

Device nodes are made here, not by udev: a busy udev would otherwise sit between
a table and the next one (see the udev rules in ``etc/``).

A table is a list of (start, length, target, parameters), in sectors of 512 bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import logging
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator

from virtman.privileged import chunks, context

LOG = logging.getLogger(__name__)

Table = list[tuple[int, int, str, str]]

# enum in libdevmapper.h
_CREATE, _RELOAD, _REMOVE, _SUSPEND, _RESUME, _INFO, _STATUS, _TABLE, _LIST, _CLEAR = (
    0, 1, 2, 4, 5, 7, 10, 11, 13, 14,
)  # fmt: skip
_MKNODES, _MESSAGE = 15, 17

_ADD_NODE_ON_CREATE = 1

_SECTOR = 512
_COUNTER = "virtman"
"""By which counters of ours are told from those of others."""

# The library keeps pending device-node changes in a global list, so only one verb
# that makes or removes nodes may run at a time. Suspend and resume may wait for I/O, so they
# run outside: they must never hold up the verb that lets the I/O end. Suspend touches no node,
# and resume does not if it is told that nodes are made with their devices.
_nodes = threading.Lock()

# Devices that are being held, each by a thread of its own, and what guards their names.
_holding: set[str] = set()
_holds = threading.Condition()

# Paths of devices whose flush was given up, or goes on, each by a thread of its own.
_flushing: set[str] = set()
_flushes = threading.Lock()

PATIENCE = 10.0
"""Seconds that whoever uses a device is held back for I/O that is on its way to end."""

_INTERRUPTING = 0.1


class _Info(ctypes.Structure):
    _fields_ = (
        ("exists", ctypes.c_int), ("suspended", ctypes.c_int), ("live_table", ctypes.c_int),
        ("inactive_table", ctypes.c_int), ("open_count", ctypes.c_int32),
        ("event_nr", ctypes.c_uint32), ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
        ("read_only", ctypes.c_int), ("target_count", ctypes.c_int32),
        ("deferred_remove", ctypes.c_int), ("internal_suspend", ctypes.c_int),
    )  # fmt: skip


class _Names(ctypes.Structure):
    _fields_ = (("dev", ctypes.c_uint64), ("next", ctypes.c_uint32))


def _load() -> ctypes.CDLL:
    os.environ["DM_DISABLE_UDEV"] = "1"  # read by the library on its first call
    lib = ctypes.CDLL("libdevmapper.so.1.02.1", use_errno=True)
    lib.dm_task_create.restype = ctypes.c_void_p
    lib.dm_task_get_names.restype = ctypes.POINTER(_Names)
    lib.dm_get_next_target.restype = ctypes.c_void_p
    lib.dm_task_get_message_response.restype = ctypes.c_char_p
    lib.dm_log_with_errno_init.argtypes = (ctypes.c_void_p,)
    # The library's own messages go nowhere: every failure is reported with its errno.
    lib.dm_log_with_errno_init(ctypes.cast(_silent, ctypes.c_void_p))
    return lib


def _say_nothing(level: int, file: bytes, line: int, number: int, text: bytes) -> None:
    pass


# A callback that C keeps must be kept by Python too.
_silent = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_char_p
)(_say_nothing)

_library: ctypes.CDLL | None = None


def _lib() -> ctypes.CDLL:
    global _library  # noqa: PLW0603 - loaded by the first verb, in the privileged process
    if _library is None:
        _library = _load()
    return _library


class _Task:
    """One ioctl, prepared, run and freed."""

    def __init__(self, verb: int, name: str | None, *, read_only: bool = False) -> None:
        self.lib = _lib()
        self.name = name
        self.handle = ctypes.c_void_p(self.lib.dm_task_create(verb))
        if not self.handle:
            raise OSError(errno.ENODEV, "the kernel has no device mapper: module dm-mod is missing")
        if name is not None:
            self._must(self.lib.dm_task_set_name(self.handle, name.encode()))
        if read_only:
            self._must(self.lib.dm_task_set_ro(self.handle))

    def __enter__(self) -> _Task:
        return self

    def __exit__(self, *exc: object) -> None:
        self.lib.dm_task_destroy(self.handle)

    def _must(self, ok: int) -> None:
        if not ok:
            number = self.lib.dm_task_get_errno(self.handle) or errno.EINVAL
            raise OSError(number, f"device mapper, {self.name}: {os.strerror(number)}")

    def targets(self, table: Table) -> None:
        for start, length, target, parameters in table:
            self._must(
                self.lib.dm_task_add_target(
                    self.handle, ctypes.c_uint64(start), ctypes.c_uint64(length),
                    target.encode(), parameters.encode(),
                )
            )  # fmt: skip

    def owner(self, account: int) -> None:
        self._must(self.lib.dm_task_set_uid(self.handle, account))

    def how_to_suspend(self, flush: bool, freeze: bool) -> None:
        """Say how a device stops; one that runs does so in a resume too, for its new table."""
        if not freeze:
            self._must(self.lib.dm_task_skip_lockfs(self.handle))
        if not flush:
            self._must(self.lib.dm_task_no_flush(self.handle))

    def message(self, words: str) -> None:
        self._must(self.lib.dm_task_set_sector(self.handle, ctypes.c_uint64(0)))
        self._must(self.lib.dm_task_set_message(self.handle, words.encode()))

    def run(self) -> None:
        self._must(self.lib.dm_task_run(self.handle))

    def read_openers(self) -> int:
        info = _Info()
        self._must(self.lib.dm_task_get_info(self.handle, ctypes.byref(info)))
        if not info.exists:
            raise OSError(errno.ENXIO, f"device mapper, {self.name}: {os.strerror(errno.ENXIO)}")
        return int(info.open_count)

    def read_answer(self) -> str:
        return (self.lib.dm_task_get_message_response(self.handle) or b"").decode()

    def read_table(self) -> Table:
        start, length = ctypes.c_uint64(), ctypes.c_uint64()
        target, parameters = ctypes.c_char_p(), ctypes.c_char_p()
        table: Table = []
        position = None
        while True:
            position = self.lib.dm_get_next_target(
                self.handle, ctypes.c_void_p(position), ctypes.byref(start), ctypes.byref(length),
                ctypes.byref(target), ctypes.byref(parameters),
            )  # fmt: skip
            if target.value is not None:
                words = (parameters.value or b"").decode().strip()
                table.append((start.value, length.value, target.value.decode(), words))
            if not position:
                return table

    def read_names(self) -> list[str]:
        pointer = self.lib.dm_task_get_names(self.handle)
        names: list[str] = []
        if not pointer or not pointer.contents.dev:
            return names
        address = ctypes.addressof(pointer.contents)
        while True:
            entry = _Names.from_address(address)
            # the kernel puts the zero-terminated name behind the two numbers
            names.append(ctypes.string_at(address + _Names.next.offset + 4).decode())
            if not entry.next:
                return names
            address += entry.next


def _with_nodes(task: _Task) -> None:
    with _nodes:
        try:
            task.run()
        finally:
            task.lib.dm_task_update_nodes()


@context.entrypoint
def create(name: str, table: Table, read_only: bool, owner: int = 0) -> None:
    """Make a device with a live table.

    :param owner: number of the account that its node belongs to
    :raises OSError: EBUSY if the name is taken, EINVAL for a table the kernel refuses
    """
    with _Task(_CREATE, name, read_only=read_only) as task:
        task.targets(table)
        task.owner(owner)
        _with_nodes(task)


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
        _check_flushes(settle)

    # one that is not flushed runs until its new table is there, or is held back by somebody else
    undo = _revert if flush else _clear
    try:
        if flush:
            end = time.monotonic() + PATIENCE
            _suspend_in_time(name, flush, freeze, PATIENCE)
            if settle:
                _flush_in_time(settle, max(0.0, end - time.monotonic()))
        with _Task(_RELOAD, name, read_only=read_only) as task:
            task.targets(table)
            task.run()
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
    with _Task(_SUSPEND, name) as task:
        task.how_to_suspend(flush, freeze)
        with _interrupted_after(patience):
            task.run()


@contextlib.contextmanager
def _interrupted_after(patience: float) -> Iterator[None]:
    """Interrupt what the kernel does for this thread if it takes longer: a suspend is undone then.

    The signal has a handler only where ``start`` set one; elsewhere it is lost, and the kernel
    waits on.
    """
    if math.isinf(patience):
        yield
        return
    waiting, over = threading.get_ident(), threading.Event()

    def interrupt() -> None:
        pause = patience
        while not over.wait(pause):
            signal.pthread_kill(waiting, signal.SIGURG)
            pause = _INTERRUPTING  # the first may have come just before the ioctl

    watcher = threading.Thread(target=interrupt, name="patience", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _check_flushes(path: str) -> None:
    """Raise OSError if an earlier flush of a device has not ended: nobody is held for another."""
    with _flushes:
        if path in _flushing:
            raise _not_flushed(path)


def _flush_in_time(path: str, patience: float) -> None:
    """Have on the disk what was written to a device, or give up.

    No signal ends a flush: the kernel waits for the disk without listening to any. So a thread of
    its own waits with it, and stays behind for as long as the disk hangs.
    """
    done: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()

    def flush() -> None:
        failure = None
        try:
            chunks.flush(path)
        except OSError as err:
            failure = err
        with _flushes:
            _flushing.discard(path)
        done.put(failure)

    with _flushes:
        threading.Thread(target=flush, name=f"flush {path}", daemon=True).start()
        _flushing.add(path)
    try:
        failure = done.get(timeout=patience)
    except queue.Empty:
        raise _not_flushed(path) from None
    if failure is not None:
        raise failure


def _not_flushed(path: str) -> OSError:
    return OSError(errno.ETIMEDOUT, f"{path}: what was written to it does not get to the disk")


def _resume(name: str, flush: bool = True, freeze: bool = False) -> None:
    with _Task(_RESUME, name) as task:
        task.how_to_suspend(flush, freeze)
        task.lib.dm_task_set_add_node(task.handle, _ADD_NODE_ON_CREATE)
        task.run()


def _revert(name: str) -> None:
    _clear(name)
    _resume(name)


def _clear(name: str) -> None:
    # else whoever resumes the device next would bring the new table in
    with _Task(_CLEAR, name) as task:
        task.run()


@context.entrypoint
def remove(name: str) -> None:
    """Remove a device.

    :raises OSError: EBUSY while it is open, ENXIO if there is none
    """
    with _Task(_REMOVE, name) as task:
        _with_nodes(task)


@context.entrypoint
def mend_node(name: str, owner: int = 0) -> None:
    """Make a device's node if it has none; take the node of a device that has gone.

    Whoever dies between a verb and its node leaves one of the two.

    :param owner: number of the account that the node belongs to
    """
    with _Task(_MKNODES, name) as task:
        _with_nodes(task)
    if owner:
        with contextlib.suppress(FileNotFoundError):
            os.chown(f"/dev/mapper/{name}", owner, -1)


@context.entrypoint
def message(name: str, words: str) -> None:
    """Send a target its message, such as ``reinstate_path 8:0``."""
    _asked(name, words)


@context.entrypoint
def count_reads(name: str, area: int, bounds: list[int]) -> None:
    """Begin to count a device's reads by areas, from nothing (dm-statistics).

    :param area: bytes of one; the kernel takes some 100 bytes a processor for each
    :param bounds: nanoseconds, ascending, between which reads are counted by how long they took
    """
    _count_no_more(name)
    classes = f"histogram:{','.join(map(str, bounds))}"
    _asked(name, f"@stats_create - {area // _SECTOR} 2 precise_timestamps {classes} {_COUNTER}")


@context.entrypoint
def counted(name: str) -> list[tuple[int, int, int, list[int]]]:
    """Return what was read of each area of which something was: reads that are counted.

    :returns: number of the area, sectors that were read, nanoseconds that all reads took, and how
        many reads took up to each of the bounds, and longer; nothing if none are counted
    """
    found = []
    for region in _counters(name):
        for number, line in enumerate(_asked(name, f"@stats_print {region}").splitlines()):
            words = line.split()
            if int(words[1]):
                classes = [int(count) for count in words[-1].split(":")]
                found.append((number, int(words[3]), int(words[4]), classes))
    return found


@context.entrypoint
def count_no_more(name: str) -> None:
    """Count a device's reads no longer; a device that is not there, or not counted, is fine."""
    try:
        _count_no_more(name)
    except OSError as err:
        if err.errno != errno.ENXIO:
            raise


def _count_no_more(name: str) -> None:
    for region in _counters(name):
        _asked(name, f"@stats_delete {region}")


def _counters(name: str) -> list[str]:
    listed = _asked(name, f"@stats_list {_COUNTER}").splitlines()
    return [line.split(":")[0] for line in listed]


def _asked(name: str, words: str) -> str:
    """Send a message; return what the kernel answers."""
    with _Task(_MESSAGE, name) as task:
        task.message(words)
        task.run()
        return task.read_answer()


@context.entrypoint
def table(name: str) -> Table:
    """Return the live table; empty if there is no such device."""
    try:
        return _query(_TABLE, name, _Task.read_table)
    except OSError as err:
        if err.errno == errno.ENXIO:
            return []
        raise


@context.entrypoint
def status(name: str) -> Table:
    """Return each target's status in place of its parameters."""
    return _query(_STATUS, name, _Task.read_table)


@context.entrypoint
def is_open(name: str) -> bool:
    """Tell whether somebody has a device open: a process, or a device that lies on it.

    :raises OSError: ENXIO if there is no such device
    """
    with _Task(_INFO, name) as task:
        task.run()
        return task.read_openers() > 0


@context.entrypoint
def statuses(names: list[str]) -> dict[str, Table]:
    """Return the same of many devices, by name; those that are not there are left out."""
    found = {}
    for name in names:
        try:
            found[name] = _query(_STATUS, name, _Task.read_table)
        except OSError as err:
            if err.errno != errno.ENXIO:
                raise
    return found


@context.entrypoint
def names() -> list[str]:
    """Names of all device-mapper devices of this node."""
    with _Task(_LIST, None) as task:
        task.run()
        return task.read_names()


def _query(verb: int, name: str, read: Callable[[_Task], Table]) -> Table:
    with _Task(verb, name) as task:
        task.run()
        return read(task)
