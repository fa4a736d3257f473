"""Makes an image of Glance's a raw file on this host, whole or not at all, with its hash tree.

::

    Glance's own file, if it is here --- a link ------------+
                                                            v
    Glance -- download, hashed --> [ inspect ] -- raw --> .raw.part -- fsync, rename --> raw
                                       |                    ^
                                  .stored.part -- qemu-img -+

No data are read from the disk twice. A download goes by once, for Glance's hash, the hash tree and
the file. qemu-img writes one window of a disk after the other, and what it wrote is hashed while it
is at the next: it is still in the page cache then, and holes are not read at all.

What is not as it should be ends with an error, which tells whether the image is to blame, Glance,
or this host.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from virtman import atomic_file, sparse
from virtman.kept_tree import KeptTree, feed
from virtman.model import sizes
from virtman.model.hashtree import Builder
from virtman.openstack import inspection, qemu
from virtman.openstack.glance import CHUNK, Glance, Image
from virtman.openstack.inspection import RAW, ImageUnusable
from virtman.openstack.room import NoRoom

LOG = logging.getLogger(__name__)


_RAW = "raw"
_PAUSE = 0.5  # seconds between two words of a step
_HOLE = bytes(64 * 1024)
_WINDOW = 256 * 1024**2  # little enough to stay in memory until it is hashed
_WINDOWS = 256  # what each costs, a start of qemu-img, shall not count
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Job(Protocol):
    """Whoever has an image made."""

    def told(self, step: str, done: int, total: int) -> None:
        """Hear how far it is: how many bytes of how many are done of a step."""

    def need(self, size: int) -> None:
        """Have room for so many bytes in the image's folder, or raise NoRoom."""


@dataclass(frozen=True)
class Made:
    """What is served: a file or a block device, and its kept tree if it has one."""

    path: Path
    tree: KeptTree


def made(folder: Path) -> Made | None:
    """Return what ``make`` made in a folder, if it came to its end."""
    raw = folder / _RAW
    return Made(raw, KeptTree(folder)) if raw.exists() else None


def make(
    glance: Glance, image: Image, folder: Path, job: Job, largest: int, *, hashed: bool
) -> Made:
    """Make the file ``raw`` of a folder, with an image's disk.

    Its length is a multiple of 512, and zeros take no room in it. Nobody else may be making one in
    the folder. The file may be Glance's own, under another name: never write to it.

    :param job: hears of the steps ``downloading`` and ``converting``, twice a second at most, and
        what is needed before it is written
    :param largest: bytes that the file may have
    :param hashed: whether the folder has the file's kept tree as well
    :raises ImageUnusable: if something is wrong with the image, or it is longer than that
    :raises NoRoom: if the file system is too small for it
    :raises ImageGone: if Glance does not have it any more
    :raises GlanceUnreachable: if Glance does not answer; what has come is thrown away
    :raises VirtmanError: if qemu-img is missing here, or was killed
    """
    raw, tree = folder / _RAW, KeptTree(folder)
    inspection.check_claims(image, largest)
    with room_for(image):
        atomic_file.prepare(folder)
        leaves = _Leaves(tree if hashed else None)
        with atomic_file.making(raw) as part:
            if image.disk_format in RAW:
                if not _link(image, part, leaves, job):
                    job.need(_room(image.size, image.size))
                    _download(glance, image, part, leaves, job)
                inspection.inspect(image, part)
            else:
                _convert(glance, image, part, leaves, job, largest)
            _pad(part)
        leaves.keep(raw)
    LOG.info("image %s is a raw file in %s", image.id, folder)
    return Made(raw, tree)


class _Leaves:
    """The hash tree of what is being made, if it shall have one."""

    def __init__(self, kept: KeptTree | None) -> None:
        self.kept = kept
        self._builder: Builder | None = None

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """Begin; what is made after a failure begins anew."""
        if self.kept is None:
            yield
            return
        with self.kept.making() as self._builder:
            yield
            self._hashes = self._builder.end()

    def add(self, data: bytes) -> None:
        """Go on with these bytes."""
        if self._builder is not None:
            self._builder.add(data)

    def follow(self, file: Path, start: int, end: int) -> None:
        """Go on with what is in a part of a file."""
        if self._builder is not None:
            with open(file, "rb", buffering=0) as opened:
                descriptor = opened.fileno()
                found = sparse.runs(descriptor, start, end)
                feed(self._builder, descriptor, found, start, end, lambda more: None)

    def keep(self, file: Path) -> None:
        """Keep it as that of a file, which must not change any more."""
        if self.kept is not None:
            self.kept.keep(self._hashes, str(file))


def _link(image: Image, part: Path, leaves: _Leaves, job: Job) -> bool:
    """Give Glance's own file another name here, by which it outlives the image in Glance.

    False if that cannot be, whatever the reason: then it is downloaded.
    """
    place = next((url for url in map(urlsplit, image.places) if url.scheme == "file"), None)
    # Padding would change Glance's file, and without a hash anything may be in its place.
    if place is None or image.size % sizes.SECTOR or not _hash(image)[1]:
        return False
    try:
        os.link(unquote(place.path), part, follow_symlinks=False)
        # A symbolic link may have been linked, or a device: only the new name does not change.
        if not stat.S_ISREG(os.lstat(part).st_mode):
            LOG.warning("image %s: %s is no file; downloading", image.id, place.path)
            return False
        with open(part, "rb", buffering=0) as file, leaves.making():
            for chunk in _verified(image, iter(partial(file.read, CHUNK), b""), job):
                leaves.add(chunk)
    except ImageUnusable as err:
        # Another host's file may be at the same place of this host, or an old one.
        LOG.warning("%s; downloading it instead of linking %s", err, place.path)
        return False
    except OSError as err:
        LOG.info("image %s: %s cannot be linked (%s); downloading", image.id, place.path, err)
        return False
    return True


def _download(glance: Glance, image: Image, file: Path, leaves: _Leaves, job: Job) -> None:
    """Write an image to a file as Glance stores it, with holes for zeros."""
    # What has this name may be Glance's file, or that of a process that was killed.
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (
        open(descriptor, "wb") as opened,
        contextlib.closing(glance.download(image.id)) as chunks,
        leaves.making(),
    ):
        for chunk in _verified(image, chunks, job):
            leaves.add(chunk)
            for start in range(0, len(chunk), len(_HOLE)):
                block = chunk[start : start + len(_HOLE)]
                if block == _HOLE[: len(block)]:
                    opened.seek(len(block), os.SEEK_CUR)
                else:
                    opened.write(block)
        opened.truncate()


def _verified(image: Image, chunks: Iterable[bytes], job: Job) -> Iterator[bytes]:
    """Pass on what comes, and raise an error in the end if it is not what Glance stored."""
    algorithm, expected = _hash(image)
    digest = hashlib.new(algorithm, usedforsecurity=False)
    progress = Progress(job, "downloading", image.size)
    done = 0
    for chunk in chunks:
        done += len(chunk)
        if done > image.size:
            break
        digest.update(chunk)
        progress(done)
        yield chunk
    if done != image.size:
        more = "more" if done > image.size else f"{done}"
        raise ImageUnusable(
            f"image {image.id} has {image.size} bytes according to Glance, and {more} came; "
            "upload it again"
        )
    if expected and digest.hexdigest() != expected:
        raise ImageUnusable(
            f"image {image.id} has another {algorithm} than Glance says: it is damaged; upload it "
            "again"
        )


def _hash(image: Image) -> tuple[str, str | None]:
    """Return an algorithm of hashlib, and what it makes of the image if Glance knows."""
    if not image.hash_algo or not image.hash_value:
        return "md5", image.checksum
    # Those of variable length are none that Glance could use.
    if image.hash_algo not in hashlib.algorithms_available or image.hash_algo.startswith("shake"):
        raise ImageUnusable(
            f"image {image.id} is hashed with {image.hash_algo}, which this host does not have; "
            "upload it again with hashing_algorithm = sha512 in Glance"
        )
    return image.hash_algo, image.hash_value


def _convert(
    glance: Glance, image: Image, part: Path, leaves: _Leaves, job: Job, largest: int
) -> None:
    """Download an image beside, and write its disk to a file."""
    stored = atomic_file.part_of(part.with_name("stored"))
    try:
        job.need(image.size)
        _download(glance, image, stored, _Leaves(None), job)
        inspection.check_size(image, inspection.inspect(image, stored), largest)
        size = qemu.disk_size(image, stored)
        inspection.check_size(image, size, largest)
        qemu.check(image, stored)
        job.need(image.size + _room(qemu.data_size(image, stored), size))
        part.touch(0o600, exist_ok=False)
        os.truncate(part, size)
        progress = Progress(job, "converting", size)
        with leaves.making(), ThreadPoolExecutor(1) as pool:
            hashed = pool.submit(lambda: None)
            for start, end in _windows(size):
                qemu.convert(image, stored, part, start, end, progress)
                hashed.result()
                hashed = pool.submit(leaves.follow, part, start, end)
            hashed.result()
        progress(size)
    finally:
        stored.unlink(missing_ok=True)


def _windows(size: int) -> Iterator[tuple[int, int]]:
    """Return the windows of a disk, begin and end: few for one that is very long."""
    window = max(_WINDOW, size // _WINDOWS // _WINDOW * _WINDOW)
    for start in range(0, size, window):
        yield start, min(start + window, size)


def _pad(file: Path) -> None:
    beyond = file.stat().st_size % sizes.SECTOR
    if beyond:
        os.truncate(file, file.stat().st_size - beyond + sizes.SECTOR)


def _room(data: int, length: int) -> int:
    """Return what a file with so much data takes, with the leaves of its hash tree."""
    # The file system keeps books of its own.
    return data + data // 64 + length // 128


@contextlib.contextmanager
def room_for(image: Image) -> Iterator[None]:
    """Raise NoRoom if the file system becomes full meanwhile."""
    try:
        yield
    except OSError as err:
        if err.errno not in _FULL:
            raise
        raise NoRoom(f"image {image.id}: {err}; make room") from err


class Progress:
    """Tells how far a step is: its begin, its end, and now and then between them."""

    def __init__(self, job: Job, step: str, total: int) -> None:
        self.job = job
        self.step = step
        self.total = total
        self._done = 0
        self._next = time.monotonic() + _PAUSE
        job.told(step, 0, total)

    def __call__(self, done: int) -> None:
        """Take notice of how many bytes are done."""
        now = time.monotonic()
        if done > self._done and (done >= self.total or now >= self._next):
            self._done, self._next = done, now + _PAUSE
            self.job.told(self.step, done, self.total)
