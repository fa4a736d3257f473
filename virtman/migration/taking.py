"""Takes a layer from the node that made it: to this storage node, which is its source then.

::

    <layer>.layer.part    what came so far: the next attempt goes on behind it
    <layer>.layer         all of it, right and on the disk
    served, Volt told     hosts read it from here; the node that made it may remove it

What comes is compared with the root hash at Volt, whoever changed it on the way.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Self

from virtman import atomic_file, kept_tree, source, sparse
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.interface import ImageInfo, Shape
from virtman.errors import InvalidRequest, LayerComing, LayerUnknown, LayerWrong, NoSpace
from virtman.kept_tree import KeptTree, Progress
from virtman.migration.peer_client import Peer, Peers
from virtman.migration.tls import Credentials
from virtman.model import naming
from virtman.model.dirty import PORTION

_TIMEOUT = 30.0
_FOLDER = Path("/var/lib/virtman/storage")
"""Of the certificate by which nodes know this one."""

_LANES = 2
"""Portions that come side by side, while one is written."""


def take(
    layer: str,
    folder: Path,
    where: source.Storage,
    volt: str,
    access: Access,
    progress: Progress = lambda done, size: None,
) -> source.Added:
    """Have all of a layer in a folder, and serve it; repeatable.

    An attempt that was interrupted goes on where it ended. If this host serves an image with which
    the layer has much in common, it is based on that: nodes that have both read equal blocks, such
    as pages of memory, from the other one.

    :param progress: is told how many bytes more are there, and of how many
    :raises InvalidRequest: if it is no layer
    :raises LayerUnknown: if no node has it that made it, and neither has the folder
    :raises LayerComing: if it is being taken here already
    :raises LayerWrong: if what came is not the layer that Volt knows
    :raises NoSpace: if it does not fit
    :raises PeerUnreachable: if the node that made it does not answer
    """
    naming.check("host", where.host)
    coordinator = VoltClient(volt, where.host, _TIMEOUT, access)
    info = coordinator.image(naming.check("layer", layer))
    if info.layer is None or info.tree is None:
        raise InvalidRequest(f"image {layer} is no layer: serve its file with 'virtman source add'")
    file, kept = folder / f"{layer}.layer", source.kept_tree(layer)
    if not _is_there(file, info, kept):
        if not info.layer.maker:
            raise LayerUnknown(
                f"no node keeps layer {layer} that made it: it is on storage already, and the file "
                f"of that is not {file}"
            )
        atomic_file.prepare(_FOLDER)
        peers = Peers(coordinator, Credentials(coordinator, _FOLDER, None), _TIMEOUT)
        with _Lanes(peers, info) as lanes:
            _fetch(lanes, info, file, kept, progress)
    base = source.Base(is_found=True)
    return source.add(layer, str(file), where, volt, access, Shape(), layered=True, base=base)


def _is_there(file: Path, info: ImageInfo, kept: KeptTree) -> bool:
    if not file.exists() or file.stat().st_size != info.size:
        return False
    tree, _ = kept.of(str(file), info.size, lambda *_: None)
    return tree == info.tree


class _Lanes:
    """Connections to the node that made a layer: while one waits for an answer, another one comes.

    :ivar host: that node
    """

    def __init__(self, peers: Peers, info: ImageInfo) -> None:
        assert info.layer is not None
        self.host = info.layer.maker
        self._info = info
        self._peers = [peers.peer(self.host) for _ in range(_LANES)]
        self._idle = SimpleQueue[Peer]()
        for peer in self._peers:
            self._idle.put(peer)
        self._pool = ThreadPoolExecutor(_LANES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for peer in self._peers:
            peer.close()

    def portions(self, begun: int) -> Iterator[tuple[int, bytes]]:
        """Give the rest of the layer in order, with where it belongs; some comes ahead."""
        coming = deque[tuple[int, Future[bytes]]]()
        for at in range(begun, self._info.size, PORTION):
            coming.append((at, self._pool.submit(self._ask, at)))
            if len(coming) > _LANES:
                yield _first(coming)
        while coming:
            yield _first(coming)

    def _ask(self, at: int) -> bytes:
        peer = self._idle.get()
        try:
            return peer.layer(self._info.name, at, min(PORTION, self._info.size - at))
        finally:
            self._idle.put(peer)


def _first(coming: deque[tuple[int, Future[bytes]]]) -> tuple[int, bytes]:
    at, content = coming.popleft()
    return at, content.result()


def _fetch(lanes: _Lanes, info: ImageInfo, file: Path, kept: KeptTree, progress: Progress) -> None:
    """Have the file, and keep its hash tree.

    Of what an earlier attempt left the power may have taken some: if all is there and it is wrong,
    it is fetched once more.
    """

    def tell(done: int) -> None:
        progress(done, info.size)

    part = Path(f"{file}.part")
    with _opened(part) as descriptor:
        while True:
            begun = os.fstat(descriptor).st_size
            begun = 0 if begun > info.size else begun - begun % PORTION
            os.ftruncate(descriptor, begun)
            _check_room(file, info.size - begun)
            with kept.making() as builder:
                found = sparse.runs(descriptor, 0, begun)
                kept_tree.feed(builder, descriptor, found, 0, begun, tell)
                for at, content in lanes.portions(begun):
                    _write(descriptor, content, at, file)
                    builder.add(content)
                    tell(len(content))
                hashes = builder.end()
            if hashes[0] == info.tree:
                break
            os.ftruncate(descriptor, 0)
            if not begun:
                part.unlink()
                raise LayerWrong(
                    f"what came from host {lanes.host} is not layer {info.name} that Volt knows: "
                    "its file there was changed, or its disk fails"
                )
        atomic_file.put(part, file)
    kept.keep(hashes, str(file))


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
