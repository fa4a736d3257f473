"""Memory in which the privileged part and its caller hand data to each other.

A message of oslo.privsep is received in pieces of 4 KiB: a MiB takes 256 turns, and longer than the
disk does. This memory is made as the module is imported, before the one is forked off the other.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator
from queue import SimpleQueue

SLOT = 1024 * 1024
"""Bytes of a slot; it begins at a page, as direct I/O wants."""

_COUNT = 8
_memory = mmap.mmap(-1, _COUNT * SLOT)
_free: SimpleQueue[int] = SimpleQueue()
for _number in range(_COUNT):
    _free.put(_number)


@contextlib.contextmanager
def slot() -> Iterator[int]:
    """Have a slot for this thread alone; give its number. All may be taken for a while."""
    number = _free.get()
    try:
        yield number
    finally:
        _free.put(number)


@contextlib.contextmanager
def view(number: int) -> Iterator[memoryview]:
    """Give the memory of a slot, on either side."""
    with memoryview(_memory) as memory, memory[number * SLOT : (number + 1) * SLOT] as part:
        yield part
