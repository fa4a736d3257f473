"""What a QEMU may not do: more than guests need, and to read memory 2 MiB at a time.

QEMU asks the kernel for huge pages on all guest memory. Where that is a mapped device, Linux then
reads 2 MiB from the device for each page that is not there. No option of QEMU's turns this off, so
a filter of system calls answers this one question with "done". The filter is a thread's own, and
holds for the threads, processes and programs that come of it.
"""

from __future__ import annotations

import ctypes
import os
import struct

from virtman.errors import HostUnfit

OPTIONS = (
    "-sandbox",
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
)

_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2  # of prctl
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # of the filter's language
_ALLOW, _DONE = 0x7FFF0000, 0x00050000
_X86_64, _MADVISE, _HUGEPAGE = 0xC000003E, 28, 14
_NUMBER, _ARCHITECTURE, _ADVICE = 0, 4, 32  # where these are in what the filter looks at


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _step(code: int, value: int, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, 0, otherwise, value)


_STEPS = b"".join(
    (
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, _X86_64, 5),
        _step(_LOAD, _NUMBER),
        _step(_EQUAL, _MADVISE, 3),
        _step(_LOAD, _ADVICE),
        _step(_EQUAL, _HUGEPAGE, 1),
        _step(_RETURN, _DONE),
        _step(_RETURN, _ALLOW),
    )
)


def have_no_huge_pages() -> None:
    """Have this thread, and all that comes of it, ask for no huge pages; nor gain privileges.

    :raises HostUnfit: if the kernel filters no system calls
    """
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(_STEPS) // 8, _STEPS)
    for arguments in ((_NO_NEW_PRIVS, 1, 0, 0, 0), (_SECCOMP, _FILTER, ctypes.byref(program))):
        if libc.prctl(*arguments):
            why = os.strerror(ctypes.get_errno())
            raise HostUnfit(f"this host's kernel filters no system calls ({why})")
