"""libdevmapper, through ctypes: one ioctl after the other; no process is started."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from enum import IntEnum

Table = list[tuple[int, int, str, str]]
"""Start, length, target and parameters of each row, in sectors of 512 bytes."""


class Verb(IntEnum):
    """What an ioctl does: the enum in libdevmapper.h."""

    CREATE = 0
    RELOAD = 1
    REMOVE = 2
    SUSPEND = 4
    RESUME = 5
    INFO = 7
    STATUS = 10
    TABLE = 11
    LIST = 13
    CLEAR = 14
    MKNODES = 15
    MESSAGE = 17


_ADD_NODE_ON_CREATE = 1

# The library keeps pending device-node changes in a global list, so only one task
# that makes or removes nodes may run at a time. Suspend and resume may wait for I/O, so they
# run outside: they must never hold up the task that lets the I/O end. Suspend touches no node,
# and resume does not if it is told that nodes are made with their devices.
_nodes = threading.Lock()


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


class Task:
    """One ioctl, prepared, run and freed."""

    def __init__(self, verb: Verb, name: str | None, *, read_only: bool = False) -> None:
        self.lib = _lib()
        self.name = name
        self.handle = ctypes.c_void_p(self.lib.dm_task_create(verb))
        if not self.handle:
            raise OSError(errno.ENODEV, "the kernel has no device mapper: module dm-mod is missing")
        if name is not None:
            self._must(self.lib.dm_task_set_name(self.handle, name.encode()))
        if read_only:
            self._must(self.lib.dm_task_set_ro(self.handle))

    def __enter__(self) -> Task:
        return self

    def __exit__(self, *exc: object) -> None:
        self.lib.dm_task_destroy(self.handle)

    def _must(self, ok: int) -> None:
        if not ok:
            number = self.lib.dm_task_get_errno(self.handle) or errno.EINVAL
            raise OSError(number, f"device mapper, {self.name}: {os.strerror(number)}")

    def targets(self, table: Table) -> None:
        """Name the rows of the table that is to be loaded."""
        for start, length, target, parameters in table:
            self._must(
                self.lib.dm_task_add_target(
                    self.handle, ctypes.c_uint64(start), ctypes.c_uint64(length),
                    target.encode(), parameters.encode(),
                )
            )  # fmt: skip

    def owner(self, account: int) -> None:
        """Name the account that the new device's node belongs to."""
        self._must(self.lib.dm_task_set_uid(self.handle, account))

    def how_to_suspend(self, flush: bool, freeze: bool) -> None:
        """Say how a device stops; one that runs does so in a resume too, for its new table."""
        if not freeze:
            self._must(self.lib.dm_task_skip_lockfs(self.handle))
        if not flush:
            self._must(self.lib.dm_task_no_flush(self.handle))

    def message(self, words: str) -> None:
        """Say what is sent to the target."""
        self._must(self.lib.dm_task_set_sector(self.handle, ctypes.c_uint64(0)))
        self._must(self.lib.dm_task_set_message(self.handle, words.encode()))

    def run(self) -> None:
        """Do it; raise OSError if the kernel refuses."""
        self._must(self.lib.dm_task_run(self.handle))

    def run_with_nodes(self) -> None:
        """Run, and have device nodes made and removed accordingly."""
        with _nodes:
            try:
                self.run()
            finally:
                self.lib.dm_task_update_nodes()

    def run_without_nodes(self) -> None:
        """Run, of a resume: nodes were made with their devices."""
        self.lib.dm_task_set_add_node(self.handle, _ADD_NODE_ON_CREATE)
        self.run()

    def read_openers(self) -> int:
        """Return how many have the device open; raise OSError, ENXIO, if there is none."""
        info = _Info()
        self._must(self.lib.dm_task_get_info(self.handle, ctypes.byref(info)))
        if not info.exists:
            raise OSError(errno.ENXIO, f"device mapper, {self.name}: {os.strerror(errno.ENXIO)}")
        return int(info.open_count)

    def read_answer(self) -> str:
        """Return what a target says to a message."""
        return (self.lib.dm_task_get_message_response(self.handle) or b"").decode()

    def read_table(self) -> Table:
        """Return the rows of a table, or of a status."""
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
        """Return the names of all devices."""
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


def ask(name: str, words: str) -> str:
    """Send a device's target a message; return what the kernel answers."""
    with Task(Verb.MESSAGE, name) as task:
        task.message(words)
        task.run()
        return task.read_answer()
