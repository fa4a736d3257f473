"""Verbs on TCP connections that belong to another process."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from virtman.privileged import context

_PIDFD_GETFD = 438  # the number of the system call, the same on all architectures
_NOWHERE = (ctypes.c_uint16 * 8)(socket.AF_UNSPEC)  # an address of no family: disconnect


@context.entrypoint
def end(program: str, ip: str, port: int, own: int) -> int:
    """End a program's connection to a peer without asking the peer; return how many there were.

    A kernel sends again for many minutes before it gives a peer up that fell silent.

    :param own: this side's port

    :raises OSError: EPERM, or ENOSYS before Linux 5.6
    """
    ended = 0
    for pid in _running(program):
        for copy in _sockets(pid):
            with copy:
                if _ends(copy) == (own, ip, port):
                    _disconnect(copy)
                    ended += 1
    return ended


def _running(program: str) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "comm").read_text().strip() == program:
                yield int(process.name)


def _sockets(pid: int) -> Iterator[socket.socket]:
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(entry).startswith("socket:"):
                    yield socket.socket(fileno=_called("syscall", _PIDFD_GETFD, process,
                                                       int(entry.name), 0))  # fmt: skip
    finally:
        os.close(process)


def _ends(connection: socket.socket) -> tuple[int, str, int] | None:
    """Return this side's port, and the peer's address and port; None if there are none."""
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            ip, port, *_ = connection.getpeername()
            return connection.getsockname()[1], ip, port
    return None


def _disconnect(connection: socket.socket) -> None:
    _called("connect", connection.fileno(), ctypes.byref(_NOWHERE), ctypes.sizeof(_NOWHERE))
    # it is closed now, and this makes the kernel tell those who use it
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _called(function: str, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc[function](*arguments)
    if result < 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, os.strerror(number))
    return result
