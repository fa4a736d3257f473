"""Tells whether a copy of an image is what the image's hash tree says: the disk is asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from virtman.image.attachment import Attachment
from virtman.model import hashtree
from virtman.model.copying import Copy
from virtman.model.hashtree import BLOCK, DIGEST

GROUP = BLOCK // DIGEST * BLOCK
"""Bytes of which one block of leaves has the digests."""


@dataclass(frozen=True)
class Findings:
    """What a scrub did.

    :ivar checked: bytes that were compared
    :ivar dropped: where in the image blocks of 4 KiB were wrong
    """

    checked: int
    dropped: tuple[int, ...]


class Comparison:
    """One copy, of an image that is attached and has a hash tree."""

    def __init__(self, attachment: Attachment, copy: Copy) -> None:
        info = attachment.info
        assert info.tree is not None
        self.layout = copy.layout
        self._path = copy.path
        self._salt = info.tree.salt
        self._size = info.size
        self._upper = Path(attachment.upper)

    def wrong(self, pause: Callable[[int], bool]) -> list[int]:
        """Return where blocks are wrong, as offsets in the copy.

        If some are of the leaves, nothing tells about the image, and only they are returned.

        :param pause: is called with the bytes that were compared since it was called last, after
            each group; returns whether that was enough
        """
        lowest = hashtree.lowest(self._upper.read_bytes(), self._size)
        begin, wrong = self.layout.leaves_at, list[int]()
        for start, length in _groups(self.layout.leaves):
            wrong += self._compare(begin + start, length, lowest[start // BLOCK * DIGEST :])
        if wrong:
            return wrong
        for start, length in _groups(self.layout.image):
            told = self.read(begin + start // BLOCK * DIGEST, length // BLOCK * DIGEST)
            wrong += self._compare(start, length, told)
            if pause(length):
                break
        return wrong

    def read(self, start: int, length: int) -> bytes:
        """Return a part of the copy; it may come from memory."""
        with open(self._path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)

    def forget(self, start: int, length: int) -> None:
        """Have memory give up what it has of a part of the copy; the disk keeps it."""
        with open(self._path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_DONTNEED)

    def _compare(self, start: int, length: int, digests: bytes) -> list[int]:
        """Return where blocks of a part are not what their digests say."""
        self.forget(start, length)
        data = self.read(start, length)
        self.forget(start, length)
        if len(data) < length:  # the file was cut
            return list(range(start, start + length, BLOCK))
        return [start + at * BLOCK for at in hashtree.wrong(data, digests, self._salt)]


def _groups(end: int) -> Iterator[tuple[int, int]]:
    for start in range(0, end, GROUP):
        yield start, min(GROUP, end - start)
