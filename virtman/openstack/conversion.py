"""Makes an image of Glance's a raw file on this host, whole or not at all.

::

    Glance's own file, if it is here --- a link ------------+
                                                            v
    Glance -- download, hashed --> [ inspect ] -- raw --> .raw.part -- fsync, rename --> raw
                                       |                    ^
                                  .stored.part -- qemu-img -+

A download is never read twice: what is not as it should be ends with an error, which tells whether
the image is to blame, Glance, or this host.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from virtman import atomic_file
from virtman.model import sizes
from virtman.openstack import inspection, qemu
from virtman.openstack.glance import CHUNK, Glance, Image
from virtman.openstack.inspection import RAW, ImageUnusable
from virtman.openstack.qemu import NoRoom

LOG = logging.getLogger(__name__)

Told = Callable[[str, int, int], None]
"""Hears a step, how many bytes of it are done, and of how many."""

_RAW = "raw"
_PAUSE = 0.5  # seconds between two words of a step
_HOLE = bytes(64 * 1024)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def made(folder: Path) -> Path | None:
    """Return the file ``raw`` of a folder, if it is there: it is whole then."""
    raw = folder / _RAW
    return raw if raw.exists() else None


def make(glance: Glance, image: Image, folder: Path, told: Told, limit: int) -> Path:
    """Return the file ``raw`` of a folder, with the image's disk; make it if it is not there.

    Its length is a multiple of 512, and zeros take no room in it. Nobody else may be making one in
    the folder. The file may be Glance's own, under another name: never write to it.

    :param told: hears of the steps ``downloading`` and ``converting``, twice a second at most
    :param limit: bytes that the file may have
    :raises ImageUnusable: if something is wrong with the image, or it is longer than that
    :raises NoRoom: if the file system is too small for it
    :raises ImageGone: if Glance does not have it any more
    :raises GlanceUnreachable: if Glance does not answer; what has come is thrown away
    :raises VirtmanError: if qemu-img is missing here, or was killed
    """
    present = made(folder)
    if present is not None:
        return present
    raw = folder / _RAW
    inspection.check_claims(image, limit)
    with _room_for(image):
        atomic_file.prepare(folder)
        with atomic_file.making(raw) as part:
            if image.disk_format in RAW:
                if not _link(image, part, told):
                    _download(glance, image, part, told)
                inspection.inspect(image, part)
            else:
                _convert(glance, image, part, told, limit)
            _pad(part)
    LOG.info("image %s is a raw file in %s", image.id, folder)
    return raw


def _link(image: Image, part: Path, told: Told) -> bool:
    """Give Glance's own file another name here, by which it outlives the image in Glance.

    False if that cannot be, whatever the reason: then it is downloaded.
    """
    place = urlsplit(image.direct_url or "")
    # Padding would change Glance's file, and without a hash anything may be in its place.
    if place.scheme != "file" or image.size % sizes.SECTOR or not _hash(image)[1]:
        return False
    try:
        os.link(unquote(place.path), part, follow_symlinks=False)
        # A symbolic link may have been linked, or a device: only the new name does not change.
        if not stat.S_ISREG(os.lstat(part).st_mode):
            LOG.warning("image %s: %s is no file; downloading", image.id, place.path)
            return False
        with open(part, "rb", buffering=0) as file:
            for _ in _verified(image, iter(partial(file.read, CHUNK), b""), told):
                pass
    except ImageUnusable as err:
        # Another host's file may be at the same place of this host, or an old one.
        LOG.warning("%s; downloading it instead of linking %s", err, place.path)
        return False
    except OSError as err:
        LOG.info("image %s: %s cannot be linked (%s); downloading", image.id, place.path, err)
        return False
    return True


def _download(glance: Glance, image: Image, file: Path, told: Told) -> None:
    """Write an image to a file as Glance stores it, with holes for zeros."""
    _need(image, file.parent, image.size)
    # What has this name may be Glance's file, or that of a process that was killed.
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as opened, contextlib.closing(glance.download(image.id)) as chunks:
        for chunk in _verified(image, chunks, told):
            for start in range(0, len(chunk), len(_HOLE)):
                block = chunk[start : start + len(_HOLE)]
                if block == _HOLE[: len(block)]:
                    opened.seek(len(block), os.SEEK_CUR)
                else:
                    opened.write(block)
        opened.truncate()


def _verified(image: Image, chunks: Iterable[bytes], told: Told) -> Iterator[bytes]:
    """Pass on what comes, and raise an error in the end if it is not what Glance stored."""
    algorithm, expected = _hash(image)
    digest = hashlib.new(algorithm, usedforsecurity=False)
    progress = _Progress(told, "downloading", image.size)
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


def _convert(glance: Glance, image: Image, part: Path, told: Told, limit: int) -> None:
    """Download an image beside, and write its disk to a file."""
    stored = atomic_file.part_of(part.with_name("stored"))
    try:
        _download(glance, image, stored, told)
        inspection.check_size(image, inspection.inspect(image, stored), limit)
        size = qemu.disk_size(image, stored)
        inspection.check_size(image, size, limit)
        _need(image, part.parent, size)
        part.touch(0o600, exist_ok=False)
        progress = _Progress(told, "converting", size)
        qemu.convert(image, stored, part, size, progress)
        progress(size)
    finally:
        stored.unlink(missing_ok=True)


def _pad(file: Path) -> None:
    beyond = file.stat().st_size % sizes.SECTOR
    if beyond:
        os.truncate(file, file.stat().st_size - beyond + sizes.SECTOR)


def _need(image: Image, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise NoRoom(
            f"image {image.id} needs {size} bytes in {folder}, and {free} are free; make room"
        )


@contextlib.contextmanager
def _room_for(image: Image) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        if err.errno not in _FULL:
            raise
        raise NoRoom(f"image {image.id}: {err}; make room") from err


class _Progress:
    """Tells how far a step is: its begin, its end, and now and then between them."""

    def __init__(self, told: Told, step: str, total: int) -> None:
        self.told = told
        self.step = step
        self.total = total
        self._done = 0
        self._next = time.monotonic() + _PAUSE
        told(step, 0, total)

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if done > self._done and (done >= self.total or now >= self._next):
            self._done, self._next = done, now + _PAUSE
            self.told(self.step, done, self.total)
