"""Makes the images of Glance that hosts want, serves them, and takes them away again.

Volt has all that must be known: which images are wanted, who makes which, and who needs one. On the
disk of this host there is a folder for each image, by its name at Volt::

                   claimed at Volt       known to Volt         nobody needs it for keep_time
    wanted ------> [ make, serve ] ----> [ served ] ---------> [ removed from Volt, then here ]

After a restart, what is whole is served again, and what is not is made anew if hosts wait for it.
Several hosts may do this side by side: Volt lets one of them make an image at a time, and another
one if that falls silent.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from virtman.coordinator.interface import Import, ImportTaken
from virtman.errors import CoordinatorRefused, CoordinatorUnreachable, ImageUnknown, VirtmanError
from virtman.kept_tree import KeptTree
from virtman.openstack import conversion
from virtman.openstack.ceph import Ceph, CephFailed
from virtman.openstack.conversion import Made
from virtman.openstack.glance import Glance, GlanceUnreachable
from virtman.openstack.room import NoRoom, Room, size_of

LOG = logging.getLogger(__name__)

_NAME = re.compile(r"glance-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_MIB = 1024**2
_RETRY = 2.0
_PATIENCE = 60.0
"""Seconds for which Glance may be away before an image counts as failed."""

_COMPARED = 32
"""Images at most among which a new one finds its base: to read all their leaves takes a while."""

_TIDY = 10.0
"""Seconds between two looks at who needs the images that are served."""


class Abandoned(VirtmanError):
    """The image is made by somebody else by now, or this service ends."""

    code = "virtman.openstack.abandoned"


class Sources(Protocol):
    """Serving to the hosts of the trees.

    :ivar hashed: whether images have hash trees
    """

    hashed: bool

    def add(
        self,
        image: str,
        path: str,
        told: Callable[[str, int, int], None],
        kept: KeptTree,
        beside: Mapping[str, KeptTree],
    ) -> None:
        """Serve a file or block device, and tell Volt; repeatable.

        :param beside: kept trees of others that may be served here, by name: it may be based on one
        """

    def remove(self, image: str) -> None:
        """Undo that; raises an error while Volt's hosts use the image. Repeatable."""


class Volt(Protocol):
    """What is asked of Volt."""

    def imports(self) -> Sequence[Import]:
        """Return what is wanted."""

    def tell_import(
        self, name: str, importer: str, state: str, done: int = 0, total: int = 0, detail: str = ""
    ) -> None:
        """Say how far an image is."""

    def users(self, name: str) -> int:
        """Return how many hosts need an image."""


@dataclass
class _Job:
    """An image that is being made, or served again, on a thread of its own."""

    image: str
    room: Room
    step: str = "begun"
    done: int = 0
    total: int = 0
    is_abandoned: bool = False
    is_known: bool = False  # to Volt, so hosts may read it
    is_here: bool = False  # whole, from an earlier process
    future: Future[None] = field(default_factory=Future)
    lack: int = 0
    answer: Future[bool] | None = None

    def told(self, step: str, done: int, total: int) -> None:
        """Take notice of how far it is."""
        if self.is_abandoned:
            raise Abandoned(f"image {self.image} is left to others")
        self.step, self.done, self.total = step, done, total

    def need(self, size: int) -> None:
        """Have room for so many bytes; if there is not, wait for a round that makes some."""
        while True:
            try:
                self.room.promise(self.image, size)
            except NoRoom as err:
                self.told("waiting for room", 0, 0)
                self.lack, self.answer = err.lack, Future()
                if not self.answer.result():
                    raise
            else:
                return

    @property
    def waits(self) -> bool:
        """Whether it waits for room."""
        return self.answer is not None and not self.answer.done()

    def go_on(self, has_room: bool) -> None:
        """Let it try again, if there is more room, or give up."""
        if self.waits and self.answer is not None:
            self.answer.set_result(has_room)


def glance_id(image: str) -> str | None:
    """Return the id at Glance of what Volt calls so; None if it is no image of Glance's."""
    found = _NAME.fullmatch(image)
    return found[1] if found else None


class Importer:
    """All images that this host makes and serves, looked after in rounds.

    :param name: what Volt calls this host
    :param room: where each image has a folder
    :param largest: bytes that an image may have
    :param keep_time: seconds for which an image stays that no host needs
    :param at_once: images that are made at the same time
    """

    def __init__(
        self,
        name: str,
        volt: Volt,
        glance: Glance,
        ceph: Ceph,
        sources: Sources,
        room: Room,
        largest: int,
        keep_time: float,
        at_once: int = 2,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.name = name
        self.volt = volt
        self.glance = glance
        self.ceph = ceph
        self.sources = sources
        self.room = room
        self.folder = room.folder
        self.largest = largest
        self.keep_time = keep_time
        self.now = now
        self.pause = pause
        self.at_once = at_once
        self._pool = ThreadPoolExecutor(at_once, "import")
        # LIO is changed by one at a time.
        self._serving = threading.Lock()
        # Ceph may not answer for long.
        self._removing = ThreadPoolExecutor(1, "remove")
        self._removed: dict[str, Future[None]] = {}
        self._jobs: dict[str, _Job] = {}
        self._served: set[str] = set()
        self._unused: dict[str, float] = {}
        self._tidied = -math.inf

    def tend(self) -> None:
        """Do one round; what fails for one image is said, and does not hold up others."""
        self._end_jobs()
        self._tell()
        self._make_room()
        self._begin()
        if self.now() - self._tidied > _TIDY:
            self._tidy()
            self._tidied = self.now()

    def stop(self) -> None:
        """Leave what is not made to others. What is served stays so."""
        for job in self._jobs.values():
            job.is_abandoned = True
            job.go_on(False)
        for pool in (self._pool, self._removing):
            pool.shutdown(cancel_futures=True)

    # What is being made.

    def _begin(self) -> None:
        """Begin with what is wanted, and with what an earlier process has made here."""
        wanted = set()
        for one in self.volt.imports():
            mine = one.state == "running" and one.importer == self.name
            if (mine or one.state == "wanted") and one.waiting and glance_id(one.image):
                wanted.add(one.image)
                self._start(one.image)
        known = self._served | self._jobs.keys() | self._removed.keys()
        for path in list(self.folder.iterdir()):
            if glance_id(path.name) and path.name not in known:
                if conversion.made(path) or self.ceph.has_made(path):
                    self._start(path.name)
                elif path.name not in wanted:
                    LOG.info("image %s is half made, and nobody waits for it", path.name)
                    self._clear(path.name)

    def _start(self, image: str) -> None:
        job, known = _Job(image, self.room), self._jobs.keys() | self._removed.keys()
        if image not in known and len(self._jobs) < self.at_once and self._claim(job):
            self._jobs[image] = job
            job.future = self._pool.submit(self._work, job)

    def _claim(self, job: _Job) -> bool:
        """Say that this host makes an image; tell whether it may."""
        try:
            self.volt.tell_import(job.image, self.name, "running", 0, 0, job.step)
        except ImportTaken:
            self._clear(job.image)
            return False
        except CoordinatorRefused:  # an earlier process made it, and it is served again
            job.is_known = True
        return True

    def _work(self, job: _Job) -> None:
        made = self._made(job)
        with self._serving:
            job.told("serving", 0, 0)
            self.sources.add(job.image, str(made.path), job.told, made.tree, self._trees())

    def _trees(self) -> Mapping[str, KeptTree]:
        """Return the kept trees of the images that hosts needed last, newest first."""
        images = (path.name for path in self.folder.iterdir() if glance_id(path.name))
        newest = sorted(images, key=lambda image: _changed(self.folder / image), reverse=True)
        return {image: KeptTree(self.folder / image) for image in newest[:_COMPARED]}

    def _made(self, job: _Job) -> Made:
        """Return what there is of an image, or make it; wait a while for a Glance that is away."""
        folder = self.folder / job.image
        until = self.now() + _PATIENCE
        while True:
            try:
                # Glance is not asked for what is here: it may have deleted it since.
                present = conversion.made(folder) or self.ceph.made(folder)
                job.is_here = present is not None
                return present or self._make(folder, job)
            except GlanceUnreachable as err:
                if self.now() > until:
                    raise
                job.told(f"waiting for Glance: {err}", 0, 0)
            self.pause(_RETRY)

    def _make(self, folder: Path, job: _Job) -> Made:
        name, hashed = glance_id(job.image), self.sources.hashed
        assert name is not None
        image = self.glance.show(name)
        mapped = self.ceph.make(image, folder, job, self.largest, hashed=hashed)
        return mapped or conversion.make(
            self.glance, image, folder, job, self.largest, hashed=hashed
        )

    def _end_jobs(self) -> None:
        ended = [one for one in self._jobs.values() if one.future.done()]
        for job in ended:
            del self._jobs[job.image]
            self.room.end(job.image)
            err = job.future.exception()
            if err is None:
                self._served.add(job.image)
                taken = self.room.taken() // _MIB
                LOG.info("image %s is served; all images take %d MiB", job.image, taken)
            elif _passes(job, err):
                LOG.warning("image %s: %s; trying again", job.image, err)
            elif not (_is_full(err) and self._retire(self._oldest())):
                self._fail(job, err)
        for job in self._jobs.values() if ended else ():
            job.go_on(True)  # there may be room now

    def _fail(self, job: _Job, err: BaseException) -> None:
        """Say why an image could not be made; what there is of it goes."""
        known = isinstance(err, (VirtmanError, OSError))
        LOG.warning("image %s: %s", job.image, err, exc_info=None if known else err)
        self._clear(job.image)
        if not job.is_abandoned:
            try:
                self.volt.tell_import(job.image, self.name, "failed", 0, 0, str(err))
            except CoordinatorRefused as refused:
                LOG.info("image %s: %s", job.image, refused)

    def _tell(self) -> None:
        """Say how far all are; what another importer took over is left to it."""
        for job in self._jobs.values():
            try:
                self.volt.tell_import(
                    job.image, self.name, "running", job.done, job.total, job.step
                )
            except ImportTaken:
                job.is_abandoned = True
            except CoordinatorRefused:
                LOG.debug("image %s is known already", job.image)

    def _make_room(self) -> None:
        """Remove unused images for those that wait for room.

        Where that is not enough, they wait for others to end, and the last one gives up.
        """
        waiting = [job for job in self._jobs.values() if job.waits]
        if waiting:
            self._look()
        for job in waiting:
            unused = self._oldest()
            if job.lack <= sum(size_of(self.folder / image) for image in unused):
                job.go_on(self._retire(unused, job.lack))
        if waiting and all(job.waits or job.is_abandoned for job in self._jobs.values()):
            waiting[-1].go_on(False)

    # What is served.

    def _tidy(self) -> None:
        """Remove images that no host has needed for a while, or for which there is no room."""
        self._go_on_removing()
        self._look()
        now = self.now()
        self._retire([one for one in self._oldest() if now - self._unused[one] > self.keep_time])
        self._retire(self._oldest(), self.room.excess())

    def _look(self) -> None:
        """See which images hosts need; the folder of one that is needed is as new as that."""
        now = self.now()
        for image in self._served:
            try:
                used = self.volt.users(image)
            except ImageUnknown:  # an operator removed it
                used = 0
            if used:
                self._unused.pop(image, None)
                with contextlib.suppress(FileNotFoundError):
                    os.utime(self.folder / image)
            else:
                self._unused.setdefault(image, now)

    def _oldest(self) -> list[str]:
        """Return the unused images, the least recently used first."""
        return sorted(self._unused, key=lambda image: _changed(self.folder / image))

    def _retire(self, images: Iterable[str], lack: float = math.inf) -> bool:
        """Remove unused images until there are so many bytes more; tell whether any went."""
        went = False
        for image in images:
            if lack <= 0:
                break
            try:
                self.sources.remove(image)
            except CoordinatorRefused as err:
                LOG.info("image %s stays: %s", image, err)
                continue
            del self._unused[image]
            self._served.discard(image)
            lack -= size_of(self.folder / image)
            self._clear(image)
            LOG.info("image %s is removed: no host needs it", image)
            went = True
        return went

    def _clear(self, image: str) -> None:
        """Remove what there is of an image, or begin with that."""
        folder = self.folder / image
        if self.ceph.has(folder):
            self._removed[image] = self._removing.submit(self.ceph.remove, folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def _go_on_removing(self) -> None:
        """Remove what Ceph has let go of; try again where it did not."""
        for image, removed in list(self._removed.items()):
            if removed.done():
                del self._removed[image]
                if err := removed.exception():
                    LOG.warning("image %s is not removed yet: %s", image, err)
                self._clear(image)


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:  # which is nothing that would be missed
        return 0.0


def _passes(job: _Job, err: BaseException) -> bool:
    """Tell whether an image is tried again without a word to those who wait for it."""
    if job.is_known and job.is_here:  # else hosts would lose what they read
        return not isinstance(err, CoordinatorRefused)
    return isinstance(err, (CoordinatorUnreachable, CephFailed))


def _is_full(err: BaseException) -> bool:
    """Tell whether a file system became full, which nobody saw coming."""
    return isinstance(err, NoRoom) and not err.lack
