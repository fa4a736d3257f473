"""Makes a raw file or block device the source of an image: served, then known to Volt."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from virtman import atomic_file, common, privileged, unpacking
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import Layer, Shape
from virtman.errors import (
    CoordinatorRefused,
    ImageMismatch,
    ImageUnknown,
    InvalidRequest,
    NoSpace,
    VirtmanError,
)
from virtman.kept_tree import KeptTree, Progress
from virtman.model import hashtree, layer_file, layer_format, naming, plan, sizes
from virtman.model.address import Portal, Proof, source_at
from virtman.model.basis import RUNS
from virtman.model.layer_file import Label
from virtman.model.naming import Device
from virtman.model.profile import carried
from virtman.model.profile_format import decode, encode
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)

_TIMEOUT = 30.0
_SECRET_BYTES = 16
# On disk, so that a source that is added again after a reboot is the one that Volt knows.
_SECRETS = Path("/var/lib/virtman/sources")
_HASHES = Path("/var/lib/virtman/hashes")
_UNPACKED = ".layer"


@dataclass(frozen=True)
class Storage:
    """This storage node: its name, and where it serves."""

    host: str
    ip: str
    port: int


@dataclass(frozen=True)
class Base:
    """On what an image is based.

    :ivar images: with which it is compared, the best match first
    :ivar is_found: whether that with which it has most in common is found by itself, of all that
        this host serves; if there is none, Volt keeps what it knows. Otherwise, without images, it
        is based on none any more
    :ivar runs: pieces at most that it may have of them
    :ivar beside: hash trees of further images that this host serves, by name
    """

    images: Sequence[str] = ()
    is_found: bool = False
    runs: int = RUNS
    beside: Mapping[str, KeptTree] = field(default_factory=dict)

    def trees(self, but: str) -> Mapping[str, KeptTree]:
        """Return the hash trees of all that this host serves, but of one image."""
        own = {one.name: kept_tree(one.name) for one in _HASHES.glob("*")}
        return {name: tree for name, tree in {**own, **self.beside}.items() if name != but}


@dataclass(frozen=True)
class Added:
    """An image that is served.

    :ivar portal: where
    :ivar based_on: what it was compared with now
    """

    portal: Portal
    based_on: tuple[str, ...]


@dataclass(frozen=True)
class Carried:
    """A boot profile that an image has from its earlier version.

    :ivar kept: how many pieces are the same in both
    :ivar pieces: how many the profile of the earlier version has
    """

    workload: str
    kept: int
    pieces: int

    @property
    def is_enough(self) -> bool:
        """Whether it was stored: one with few pieces helps nobody, and keeps new ones from it."""
        return 2 * self.kept >= self.pieces > 0


def add(
    image: str,
    path: str,
    where: Storage,
    volt: str,
    access: Access,
    shape: Shape,
    *,
    hashed: bool = True,
    kept: KeptTree | None = None,
    layered: bool = False,
    base: Base | None = None,
    progress: Progress = lambda done, size: None,
) -> Added:
    """Serve ``path`` and register it; repeatable. Nothing is served if Volt refuses.

    Hosts must know a secret, which is made here once and told to Volt.

    :param hashed: whether hosts shall be able to verify what they read; all of the image is
        read for that, unless it is a file whose tree is kept and that has not changed
    :param kept: the kept tree, whose owner removes it; by default it is one of this module's, and
        goes with the image
    :param layered: whether a file that says that it is a layer is one: whoever chooses its content
        then chooses what it lies on. One that was exported is unpacked beside itself
    :param base: on what it is based; None leaves what Volt knows of that
    :raises InvalidSize: if the file is not a multiple of 512 bytes long
    :raises ImageMismatch: if it is a layer, and its parent is another image by now
    :raises LayerFileInvalid: if it was exported, and has been changed or cut
    :raises NoSpace: if it was exported, and there is no space for it beside
    :raises ImageUnknown: if Volt does not know an image on which it is based
    :raises InvalidRequest: if such an image is not served by this host with a hash tree
    :raises SuspendedForeign: if such an image has memory of another project's VMs
    """
    naming.check("image", image)
    naming.check("host", where.host)
    coordinator = VoltClient(volt, where.host, _TIMEOUT, access)
    kept = kept or kept_tree(image)
    if layered:
        path = _unpacked(path, kept, coordinator)
    size = _size(path)
    steps = steps_of(image, where, size, path, kept.leaves)
    layer = _layer(path, coordinator) if layered else None
    become_privileged()
    tree = None
    if hashed and hashtree.has_tree(size):
        tree = kept.of(path, size, progress)
    else:
        steps = steps[:1]
    compared = common.New(image, size, kept, tree, layer.project if layer else "")
    others, basis = _basis(compared, base, coordinator) if base else ((), None)
    sources = [transport.source(step) for step in steps]
    served = all(source.is_up() for source in sources)
    try:
        for source in sources:
            source.up(())
        proof = Proof(image, _secret(image))
        sources[0].require(proof)
        for told in (basis, None):
            try:
                coordinator.register(image, size, shape, steps[0].portal, proof, tree, layer, told)
                break
            except (CoordinatorRefused, ImageUnknown) as err:
                if told is None or not base or not base.is_found:
                    raise
                # what was found may have gone or changed meanwhile, and nobody asked for it
                LOG.warning("image %s is based on none: %s", image, err)
                others = ()
    except VirtmanError:
        if not served:
            for source in sources:
                source.down()  # the secret stays: Volt may know it, and the answer was lost
        raise
    return Added(steps[0].portal, others)


def _basis(
    new: common.New, base: Base, coordinator: VoltClient
) -> tuple[tuple[str, ...], bytes | None]:
    """Return on which images one is based, and what it has in common with them, encoded."""
    served = base.trees(but=new.image)
    try:
        names = base.images
        if base.is_found:
            names = common.nearest(new, served, coordinator)
        if not names:
            return (), b"" if new.hashes and not base.is_found else None
        others = common.others(
            new, names, coordinator, lambda one: one in served and served[one].leaves.exists()
        )
        with contextlib.ExitStack() as stack:
            told = [stack.enter_context(_leaves(one.name, served)) for one in others]
            compared = list(zip(others, told, strict=True))
            found = common.basis(new, compared, base.runs)
    except (ImageUnknown, InvalidRequest):
        if not base.is_found:
            raise
        return (), None  # what was found has gone meanwhile
    return tuple(one.name for one in others), found


def carry(old: str, image: str, host: str, volt: str, access: Access) -> Sequence[Carried]:
    """Give an image the boot profiles of its earlier version, as far as these hold for it.

    Both must be served here, with hash trees: their leaves tell which pieces are the same. What the
    image has a profile of already is left alone. A profile of which less than half is kept is not
    stored, so that the image's next boots are recorded.

    :raises InvalidRequest: if one of them is not
    """
    naming.check("image", old)
    coordinator = VoltClient(volt, host, _TIMEOUT, access)
    tree = coordinator.image(image).tree
    done = []
    with _leaves(old) as before, _leaves(image) as now:
        for workload in coordinator.profiles(old):
            found = coordinator.profile(old, workload)
            if found is None or tree is None or coordinator.profile(image, workload) is not None:
                continue
            made = decode(found[0])
            kept = carried(made, before, now, tree.root)
            done.append(Carried(workload, kept.total, made.total))
            if done[-1].is_enough:
                coordinator.store_profile(image, workload, encode(kept), None)
    return done


@contextlib.contextmanager
def _leaves(image: str, served: Mapping[str, KeptTree] | None = None) -> Iterator[memoryview]:
    """Give the leaves of an image's hash tree, without reading them all."""
    try:
        with ((served or {}).get(image) or kept_tree(image)).mapped() as leaves:
            yield leaves
    except FileNotFoundError as err:
        raise InvalidRequest(
            f"image {image} is not served by this host with a hash tree, so nothing tells what "
            "two images share: run this where both are served"
        ) from err


def kept_tree(image: str) -> KeptTree:
    """Return the hash tree of an image that this storage node serves, or is to serve."""
    return KeptTree(_HASHES / image)


def remove(image: str, host: str, volt: str, access: Access) -> None:
    """Make the image unknown to Volt, which refuses while hosts need it; then stop serving it.

    :raises ImageUnknown: if it is neither known nor served
    """
    _stop(image, host, lambda: VoltClient(volt, host, _TIMEOUT, access).forget(image))


def withdraw(
    image: str, host: str, volt: str, access: Access, *, forced: bool
) -> tuple[bool, str | None]:
    """Stop serving an image, which Volt forgets if no host needs it.

    :param forced: although hosts need the image, and none has all of it
    :returns: whether the image stays known, and which host stands for its source then
    :raises ImageUnknown: if it is neither known nor served
    :raises CoordinatorRefused: if hosts need it, and none has all of it
    """
    left: tuple[bool, str | None] = (False, None)

    def ask() -> None:
        nonlocal left
        left = VoltClient(volt, host, _TIMEOUT, access).withdraw(image, forced)

    _stop(image, host, ask)
    return left


def _stop(image: str, host: str, ask: Callable[[], None]) -> None:
    """Stop serving an image once Volt has been asked."""
    naming.check("image", image)
    naming.check("host", host)
    become_privileged()
    steps = steps_of(image, Storage(host, "", 0), sizes.SECTOR, "", Path())
    sources = [transport.source(step) for step in steps]
    try:
        ask()
    except ImageUnknown:
        if not any(source.is_up() for source in sources):  # else an earlier removal ended here
            raise
    for source in sources:
        source.down()
    (_SECRETS / image).unlink(missing_ok=True)
    shutil.rmtree(_HASHES / image, ignore_errors=True)


def steps_of(
    image: str, where: Storage, size: int, path: str, leaves: Path
) -> tuple[plan.Source, ...]:
    """Return how an image is served: it is on one disk, the leaves of its hash tree on the next.

    What LIO calls these has the host as well: else the same image, served by mistake under
    another name of this node, would take away what hosts read.
    """
    portal = source_at(where.host, image, where.ip, where.port)
    length = hashtree.leaves(size) if hashtree.has_tree(size) else sizes.BLOCK
    return (
        plan.Source(Device(image, "source", where.host), sizes.sectors(size), (), path, portal),
        plan.Source(
            Device(image, "leaves", where.host),
            sizes.sectors(length),
            (),
            str(leaves),
            portal.disk(1),
        ),
    )


def _layer(path: str, coordinator: VoltClient) -> Layer | None:
    """Return what a file lies on, if it is a layer's."""
    with open(path, "rb") as file:
        said = layer_format.describe(lambda at, size: os.pread(file.fileno(), size, at))
    if said is None:
        return None
    _check_parent(path, said.parent, said.origin, coordinator)
    return Layer(said.parent, said.disk_size, said.suspended)


def _check_parent(path: str, parent: str, origin: str, coordinator: VoltClient) -> None:
    if coordinator.image(parent).origin != origin:
        raise ImageMismatch(
            f"{path} is a layer of an earlier image {parent}: give that one its name back"
        )


def _unpacked(path: str, kept: KeptTree, coordinator: VoltClient) -> str:
    """Return the file with a layer's bytes: beside one that was exported, or that itself.

    What is there already and right is not unpacked again.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        return path
    with open(path, "rb") as packed:
        begin = packed.readline(layer_file.LONGEST)
        if not layer_file.is_begin(begin):
            return path
        label = layer_file.understand(begin)
        _check_parent(path, label.parent, label.parent_origin, coordinator)
        file = Path(f"{path}{_UNPACKED}")
        if not _is_unpacked(file, label, kept):
            with _making(file, label.length) as into:
                hashes = unpacking.unpack(label, packed, into, kept)
            kept.keep(hashes, str(file))
    return str(file)


def _is_unpacked(file: Path, label: Label, kept: KeptTree) -> bool:
    if not file.exists() or file.stat().st_size != label.length:
        return False
    tree, _ = kept.of(str(file), label.length, lambda *_: None)
    return tree.root == label.root


@contextlib.contextmanager
def _making(file: Path, length: int) -> Iterator[int]:
    """Give the descriptor of a file of zeros that is there once all of it is on the disk."""
    with atomic_file.making(file) as part:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, length)
            yield descriptor
        except OSError as err:
            if err.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise NoSpace(f"{file} needs {length} bytes: free some space in {file.parent}") from err
        finally:
            os.close(descriptor)


def _secret(image: str) -> str:
    file = _SECRETS / image
    if not file.exists():
        _SECRETS.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_file.write(file, secrets.token_hex(_SECRET_BYTES).encode())
    return file.read_text()


def _size(path: str) -> int:
    info = os.stat(path)
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    if stat.S_ISBLK(info.st_mode):
        number = f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
        return int(Path(f"/sys/dev/block/{number}/size").read_text()) * sizes.SECTOR
    raise InvalidRequest(f"{path} is neither a file nor a block device")


def become_privileged() -> None:
    """Be ready to serve; repeatable. At first only the main thread can call it.

    :raises InvalidRequest: if this process is not root's
    """
    if os.geteuid() != 0:
        raise InvalidRequest("serving an image needs root")
    privileged.start()
