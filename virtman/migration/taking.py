"""Takes a layer from the node that made it: to this storage node, which is its source then.

::

    <layer>.layer.part    what came so far: the next attempt goes on behind it
    <layer>.layer         all of it, right and on the disk
    served, Volt told     hosts read it from here; the node that made it may remove it

What comes is compared with the root hash at Volt, whoever changed it on the way. Of a layer that is
being made it comes as it is written there, and Volt is asked at the end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Self, TypeVar

from virtman import atomic_file, kept_tree, source, sparse
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import ImageInfo, Shape
from virtman.errors import (
    ImageUnknown,
    InvalidRequest,
    LayerComing,
    LayerUnknown,
    LayerWrong,
    NoSpace,
    PeerUnreachable,
)
from virtman.kept_tree import KeptTree, Progress
from virtman.migration.peer_client import Peer, Peers
from virtman.migration.tls import Credentials
from virtman.model import naming
from virtman.model.dirty import PORTION
from virtman.model.hashtree import HashTree

Answer = TypeVar("Answer")

_TIMEOUT = 30.0
_FOLDER = Path("/var/lib/virtman/storage")
"""Of the certificate by which nodes know this one."""

_LANES = 2
"""Portions that come side by side, while one is written."""

_LOOK = 0.2
"""Seconds between two looks whether Volt knows a layer of which all is here."""

_PATIENCE = 60.0
"""Seconds for which the node may not answer: its agent may be restarting."""

_PAUSE = 1.0
"""Seconds until it is asked again then."""


def take(
    layer: str,
    folder: Path,
    where: source.Storage,
    volt: str,
    access: Access,
    progress: Progress = lambda done, size: None,
    maker: str = "",
) -> source.Added:
    """Have all of a layer in a folder, and serve it; repeatable.

    An attempt that was interrupted goes on where it ended. If this host serves an image with which
    the layer has much in common, it is based on that: nodes that have both read equal blocks, such
    as pages of memory, from the other one.

    :param progress: is told how many bytes more are there, and of how many
    :param maker: host that makes the layer, which Volt may not know yet
    :raises InvalidRequest: if it is no layer
    :raises ImageUnknown: if Volt does not know it, and no host is named
    :raises LayerUnknown: if no node has it that made it, and neither has the folder; or if the
        host has given up to make it
    :raises LayerComing: if it is being taken here already
    :raises LayerWrong: if what came is not the layer that Volt knows
    :raises NoSpace: if it does not fit
    :raises PeerUnreachable: if the node that made it does not answer for a minute
    """
    naming.check("host", where.host)
    coordinator = VoltClient(volt, where.host, _TIMEOUT, access)
    wanted = _Wanted(coordinator, naming.check("layer", layer), is_made=bool(maker))
    file, kept = folder / f"{layer}.layer", source.kept_tree(layer)
    if not wanted.is_there(file, kept):
        host = wanted.maker or maker
        if not host:
            raise LayerUnknown(
                f"no node keeps layer {layer} that made it: it is on storage already, and the file "
                f"of that is not {file}"
            )
        atomic_file.prepare(_FOLDER)
        peers = Peers(coordinator, Credentials(coordinator, _FOLDER, None), _TIMEOUT)
        with _Lanes(peers, layer, host) as lanes:
            _fetch(lanes, wanted, file, kept, progress)
    base = source.Base(is_found=True)
    return source.add(layer, str(file), where, volt, access, Shape(), layered=True, base=base)


class _Wanted:
    """A layer as Volt knows it, or is about to.

    :ivar layer: its name
    :param is_made: whether it may be one that is being made
    """

    def __init__(self, coordinator: VoltClient, layer: str, *, is_made: bool) -> None:
        self._coordinator = coordinator
        self.layer = layer
        self._info: ImageInfo | None = None
        try:
            self._look()
        except ImageUnknown:
            if not is_made:
                raise

    def _look(self) -> None:
        info = self._coordinator.image(self.layer)
        if info.layer is None or info.tree is None:
            raise InvalidRequest(
                f"image {self.layer} is no layer: serve its file with 'virtman source add'"
            )
        self._info = info

    @property
    def is_known(self) -> bool:
        """Whether Volt knows it."""
        return self._info is not None

    @property
    def maker(self) -> str:
        """The node that made it, and serves it; empty if Volt knows none."""
        return self._info.layer.maker if self._info and self._info.layer else ""

    def is_there(self, file: Path, kept: KeptTree) -> bool:
        """Tell whether a file has it."""
        info = self._info
        if info is None or not file.exists() or file.stat().st_size != info.size:
            return False
        tree, _ = kept.of(str(file), info.size, lambda *_: None)
        return tree == info.tree

    def size(self, lanes: _Lanes) -> int:
        """Return its bytes, which its maker knows before Volt does."""
        return self._info.size if self._info else lanes.length()

    def is_it(self, size: int, tree: HashTree, lanes: _Lanes) -> bool:
        """Tell whether something is the layer; wait until Volt knows that, or it is given up."""
        while self._info is None:
            try:
                self._look()
            except ImageUnknown:
                lanes.length()
                time.sleep(_LOOK)
        return (size, tree) == (self._info.size, self._info.tree)


class _Lanes:
    """Connections to the node that made a layer: while one waits for an answer, another one comes.

    :ivar host: that node
    """

    def __init__(self, peers: Peers, layer: str, host: str) -> None:
        self.host = host
        self._layer = layer
        self._peers = [peers.peer(self.host) for _ in range(_LANES)]
        self._idle = SimpleQueue[Peer]()
        for peer in self._peers:
            self._idle.put(peer)
        self._pool = ThreadPoolExecutor(_LANES)
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended = True
        self._pool.shutdown(cancel_futures=True)
        for peer in self._peers:
            peer.close()

    def length(self) -> int:
        """Return the bytes of the layer.

        :raises LayerUnknown: if the node neither has it nor makes it
        """
        return self._asked(lambda peer: peer.layer_length(self._layer))

    def portions(self, begun: int, size: int) -> Iterator[tuple[int, bytes]]:
        """Give the rest of the layer in order, with where it belongs; some comes ahead."""
        coming = deque[tuple[int, Future[bytes]]]()
        for at in range(begun, size, PORTION):
            coming.append((at, self._pool.submit(self._ask, at, min(PORTION, size - at))))
            if len(coming) > _LANES:
                yield _first(coming)
        while coming:
            yield _first(coming)

    def _ask(self, at: int, size: int) -> bytes:
        return self._asked(lambda peer: peer.layer(self._layer, at, size))

    def _asked(self, ask: Callable[[Peer], Answer]) -> Answer:
        """Return what the node answers once it has come so far."""
        peer = self._idle.get()
        until = time.monotonic() + _PATIENCE
        try:
            while True:
                try:
                    return ask(peer)
                except LayerComing:  # after a while in which it was waited for
                    if self._ended:
                        raise
                    until = time.monotonic() + _PATIENCE
                except PeerUnreachable:
                    if self._ended or time.monotonic() >= until:
                        raise
                    time.sleep(_PAUSE)
        finally:
            self._idle.put(peer)


def _first(coming: deque[tuple[int, Future[bytes]]]) -> tuple[int, bytes]:
    at, content = coming.popleft()
    return at, content.result()


def _fetch(lanes: _Lanes, wanted: _Wanted, file: Path, kept: KeptTree, progress: Progress) -> None:
    """Have the file, and keep its hash tree.

    Of what an earlier attempt left the power may have taken some, and a layer that is being made
    may be begun anew: if all is there and it is wrong, it is fetched once more.
    """
    part = Path(f"{file}.part")
    with _opened(part) as descriptor:
        while True:
            was_known, size = wanted.is_known, wanted.size(lanes)
            tell = partial(_tell, progress, size)
            begun = os.fstat(descriptor).st_size
            begun = 0 if begun > size else begun - begun % PORTION
            os.ftruncate(descriptor, begun)
            _check_room(file, size - begun)
            with kept.making() as builder:
                found = sparse.runs(descriptor, 0, begun)
                kept_tree.feed(builder, descriptor, found, 0, begun, tell)
                for at, content in lanes.portions(begun, size):
                    _write(descriptor, content, at, file)
                    builder.add(content)
                    tell(len(content))
                hashes = builder.end()
            if wanted.is_it(size, hashes[0], lanes):
                break
            os.ftruncate(descriptor, 0)
            if was_known and not begun:
                part.unlink()
                raise LayerWrong(
                    f"what came from host {lanes.host} is not layer {wanted.layer} that Volt "
                    "knows: its file there was changed, or its disk fails"
                )
        atomic_file.put(part, file)
    kept.keep(hashes, str(file))


def _tell(progress: Progress, size: int, done: int) -> None:
    progress(done, size)


@contextmanager
def _opened(part: Path) -> Iterator[int]:
    """Give a file for this process alone."""
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise LayerComing(f"{part} is being written: wait for the other command") from err
        yield descriptor
    finally:
        os.close(descriptor)


def _check_room(file: Path, needed: int) -> None:
    found = os.statvfs(file.parent)
    if needed > found.f_bavail * found.f_frsize:
        raise _full(file, needed)


def _write(descriptor: int, content: bytes, at: int, file: Path) -> None:
    try:
        os.pwrite(descriptor, content, at)
    except OSError as err:
        if err.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _full(file, len(content)) from err


def _full(file: Path, needed: int) -> NoSpace:
    return NoSpace(
        f"{file} needs {needed} bytes more than there are: free some space in {file.parent}, and "
        "repeat this; it goes on where it ended"
    )
