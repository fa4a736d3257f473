"""The hash tree of what this host serves, made once and kept in a folder.

::

    leaves    what is served behind the image
    tree      root and upper levels, and what they are of: written last, and never without leaves
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from virtman import atomic_file, sparse
from virtman.model import hashtree
from virtman.model.hashtree import Builder, HashTree

Progress = Callable[[int, int], None]
"""Is told how many bytes more were hashed, and of how many."""

Hashes = tuple[HashTree, bytes]
"""A tree and its upper levels."""


class KeptTree:
    """The tree of one image; one at a time may make it.

    :param content: what changes with the content; by default that of a file is asked for, and that
        of a block device is not known
    :ivar leaves: the file of the leaves
    """

    def __init__(self, folder: Path, content: Sequence[str] = ()) -> None:
        self.folder = folder
        self.content = content
        self.leaves = folder / "leaves"
        self._note = folder / "tree"

    def of(self, path: str, size: int, progress: Progress) -> Hashes:
        """Return what is kept of a file, or of a device; make it if that is not as it was."""
        return self._kept(path) or self._read(path, size, progress)

    @contextmanager
    def making(self) -> Iterator[Builder]:
        """Give what is to be told the image; the leaves are in their file then."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_file.replacing(self.leaves) as into:
            builder = Builder(hashtree.SALT, into)
            yield builder
            atomic_file.remove(self._note)  # it is of the leaves that end here

    @contextmanager
    def mapped(self) -> Iterator[memoryview]:
        """Give the leaves, without reading them all."""
        with (
            open(self.leaves, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as leaves,
        ):
            yield leaves

    def keep(self, hashes: Hashes, path: str) -> None:
        """Keep what was made last, as that of a file or device which does not change any more."""
        self._keep(hashes, self._identity(path))

    def _keep(self, hashes: Hashes, seen: Sequence[object]) -> None:
        tree, upper = hashes
        kept = {"seen": seen, "root": tree.root, "upper": base64.b64encode(upper).decode()}
        atomic_file.write(self._note, json.dumps(kept).encode())

    def _kept(self, path: str) -> Hashes | None:
        if not (self._note.exists() and self.leaves.exists()):
            return None
        kept = json.loads(self._note.read_text())
        if kept["seen"] != self._identity(path):
            return None
        return HashTree(kept["root"], hashtree.SALT), base64.b64decode(kept["upper"])

    def _read(self, path: str, size: int, progress: Progress) -> Hashes:
        seen = self._identity(path)
        with open(path, "rb", buffering=0) as file, self.making() as builder:
            descriptor = file.fileno()
            found = sparse.runs(descriptor, 0, size)
            feed(builder, descriptor, found, 0, size, lambda done: progress(done, size))
            hashes = builder.end()
        if seen and seen == self._identity(path):
            self._keep(hashes, seen)
        return hashes

    def _identity(self, path: str) -> Sequence[object]:
        """Return what changes with the content."""
        info = os.stat(path)
        if self.content or not stat.S_ISREG(info.st_mode):
            return list(self.content)
        return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def feed(
    builder: Builder,
    descriptor: int,
    found: sparse.Runs,
    start: int,
    end: int,
    progress: Callable[[int], None],
) -> None:
    """Go on with a part of a file.

    :param found: where it has data
    :param progress: called with the bytes done since it was called last
    """
    for piece in sparse.pieces(descriptor, found, start, end):
        if isinstance(piece, int):
            builder.add_zeros(piece)
            progress(piece)
        else:
            builder.add(piece)
            progress(len(piece))
