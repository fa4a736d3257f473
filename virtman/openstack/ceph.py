"""Images that Glance has in Ceph, as devices of this host: nothing is copied.

::

    Glance's pool                          VirtMan's pool          this host
    image <id>, its snapshot  <-- layer -- clone <host>.<image> -- /dev/rbdN, to read only

Glance takes an image away although a host has mapped it: the kernel then reads zeros. So the clone
is there to hold it: as long as its snapshot has a clone, Glance refuses to delete it.

A record in the image's folder is written before the clone is made, so that whatever this service
dies over, the next one finds what there is and goes on, or takes it away.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from virtman import atomic_file
from virtman.errors import VirtmanError
from virtman.kept_tree import KeptTree, feed
from virtman.model import hashtree, sizes
from virtman.openstack import inspection
from virtman.openstack.conversion import Job, Made, Progress, room_for
from virtman.openstack.glance import Image
from virtman.openstack.inspection import RAW
from virtman.sparse import Runs

LOG = logging.getLogger(__name__)

_RECORD = "rbd"
_WORD = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
_SECONDS = 60.0
_IS_THERE, _IS_NOT_THERE = 17, 2  # what rbd ends with
_SAID = 300


class CephFailed(VirtmanError):
    """Ceph does not answer, or refuses."""

    code = "virtman.openstack.ceph"


@dataclass(frozen=True)
class _Record:
    """What there is of an image.

    :ivar snapshot: Glance's, as ``pool/image@snapshot``
    :ivar clone: ``pool/image``
    :ivar checked: whether it may be served
    """

    cluster: str
    snapshot: str
    clone: str
    checked: bool = False


class Ceph:
    """The cluster that Glance has images in.

    :param conf: configuration file of Ceph, which tells where the key of ``user`` is
    :param pool: where clones are; None if no image shall be mapped any more
    :param host: what Volt calls this host
    """

    def __init__(self, conf: str, user: str, pool: str | None, host: str) -> None:
        self.account = ("--conf", conf, "--id", user)
        self.pool = pool
        self.host = host

    def made(self, folder: Path) -> Made | None:
        """Return what ``make`` made for a folder; it is mapped again if this host has booted since.

        :raises CephFailed: if that fails
        """
        record = _recorded(folder)
        if record is None or not record.checked:
            return None
        return Made(Path(self._map(record.clone)), _tree(folder, record))

    def make(
        self, image: Image, folder: Path, job: Job, largest: int, *, hashed: bool
    ) -> Made | None:
        """Map an image; None if it cannot be, which the log explains if Ceph has it.

        :param job: hears of the steps ``mapping`` and ``hashing``
        :param hashed: whether the folder has the kept tree as well; all data are read for that
        :raises ImageUnusable: if something is wrong with the image
        """
        inspection.check_claims(image, largest)
        place = next(_places(image), None)
        if self.pool is None or place is None or image.disk_format not in RAW:
            return None
        job.told("mapping", 0, 0)
        try:
            self.remove(folder)  # what an earlier process left
            return self._make(image, folder, place, job, hashed=hashed)
        except CephFailed as err:
            LOG.warning("image %s: %s; downloading it", image.id, err)
        try:
            self.remove(folder)
        except CephFailed as err:
            LOG.warning("image %s: %s; trying again when it is removed", image.id, err)
        return None

    def has_made(self, folder: Path) -> bool:
        """Tell whether ``make`` came to its end for a folder, which can be mapped again."""
        record = _recorded(folder)
        return record is not None and record.checked

    def has(self, folder: Path) -> bool:
        """Tell whether there is anything for a folder that must be removed."""
        return _recorded(folder) is not None

    def remove(self, folder: Path) -> None:
        """Take away what there is for a folder, if there is anything; repeatable.

        :raises CephFailed: if that fails
        """
        record = _recorded(folder)
        if record is None:
            return
        # Who dies over it shall not leave what seems to be whole.
        _write(folder, replace(record, checked=False))
        for device in self._mapped(record.clone):
            self._rbd("device", "unmap", device)
        self._rbd("rm", "--no-progress", record.clone, fine=_IS_NOT_THERE)
        atomic_file.remove(folder / _RECORD)

    def _make(
        self, image: Image, folder: Path, place: tuple[str, ...], job: Job, *, hashed: bool
    ) -> Made:
        record = self._record(image, folder, place)
        atomic_file.prepare(folder)
        _write(folder, record)
        # The feature that any kernel's client has.
        layering = "--image-feature=layering"
        self._rbd("clone", layering, record.snapshot, record.clone, fine=_IS_THERE)
        device = Path(self._map(record.clone))
        with open(device, "rb") as file:
            size = file.seek(0, os.SEEK_END)
        if size != image.size:
            raise CephFailed(f"it has {image.size} bytes in Glance, and {size} in Ceph")
        inspection.inspect(image, device)
        tree = _tree(folder, record)
        if hashed:
            job.need(hashtree.leaves(size))
            with room_for(image):
                self._hash(tree, record, device, size, job)
        _write(folder, replace(record, checked=True))
        LOG.info("image %s is mapped from %s as %s", image.id, record.snapshot, device)
        return Made(device, tree)

    def _record(self, image: Image, folder: Path, place: tuple[str, ...]) -> _Record:
        """Return what will be there, if that can be."""
        cluster, pool, name, snapshot = place
        # Who may say where an image is could name that of another user.
        if name != image.id:
            raise CephFailed(f"in Ceph it is called {name}, not by its id")
        if not all(map(_WORD.fullmatch, (pool, snapshot))):
            raise CephFailed(f"in Ceph it is {pool}/{name}@{snapshot}, a name that is not simple")
        if image.size % sizes.SECTOR:
            raise CephFailed(f"its {image.size} bytes are no whole sectors")
        mine = self._run("ceph", "fsid").strip()
        if cluster != mine:
            raise CephFailed(f"it is in the cluster {cluster}, and {self.account[1]} is of {mine}")
        clone = f"{self.pool}/{self.host}.{folder.name}"
        return _Record(cluster, f"{pool}/{name}@{snapshot}", clone)

    def _hash(self, tree: KeptTree, record: _Record, device: Path, size: int, job: Job) -> None:
        progress, done = Progress(job, "hashing", size), 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            progress(done)

        with open(device, "rb", buffering=0) as file, tree.making() as builder:
            feed(builder, file.fileno(), self._data(record, size), 0, size, count)
            hashes = builder.end()
        tree.keep(hashes, str(device))

    def _data(self, record: _Record, size: int) -> Runs:
        """Return where the snapshot has data."""
        found = self._rbd("diff", "--whole-object", "--format", "json", record.snapshot)
        for one in json.loads(found):
            yield one["offset"], min(one["offset"] + one["length"], size)

    def _map(self, clone: str) -> str:
        """Return the device of a clone."""
        device = next(self._mapped(clone), None)
        return device or self._rbd("device", "map", "--read-only", clone).strip()

    def _mapped(self, clone: str) -> Iterator[str]:
        for one in json.loads(self._rbd("device", "list", "--format", "json")):
            if f"{one['pool']}/{one['name']}" == clone:
                yield one["device"]

    def _rbd(self, *words: str, fine: int = 0) -> str:
        return self._run("rbd", *words, fine=fine)

    def _run(self, program: str, *words: str, fine: int = 0) -> str:
        """Return what a command prints.

        :param fine: status with which it may end, too
        """
        # It ends with this process: else the next one could find it at work.
        command = ["setpriv", "--pdeathsig", "KILL", program, *self.account, *words]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as err:
            raise CephFailed(f"{program} {words[0]} does not end; check that Ceph answers") from err
        if done.returncode not in (0, fine):
            said = " ".join(done.stderr.split())[-_SAID:]
            raise CephFailed(f"{program} {' '.join(words)} failed: {said}")
        return done.stdout


def _places(image: Image) -> Iterator[tuple[str, ...]]:
    """Return where Ceph has an image: cluster, pool, image and snapshot."""
    for url in map(urlsplit, image.places):
        words = tuple(map(unquote, (url.netloc, *url.path.strip("/").split("/"))))
        if url.scheme == "rbd" and len(words) == 4:
            yield words


def _tree(folder: Path, record: _Record) -> KeptTree:
    return KeptTree(folder, (record.cluster, record.snapshot))


def _recorded(folder: Path) -> _Record | None:
    file = folder / _RECORD
    return _Record(**json.loads(file.read_text())) if file.exists() else None


def _write(folder: Path, record: _Record) -> None:
    atomic_file.write(folder / _RECORD, json.dumps(asdict(record)).encode())
