"""Finds what has rotted in a node's cache, and drops just those blocks.

What comes from parents is verified on its way into the cache, but not what comes out of it:
a local disk that forgets gives a VM wrong bytes. A scrub compares each block that the cache holds
with the leaves of the hash tree. A block that differs is dropped, and fetched again by whoever
wants it next.

Only what the cache holds is looked at, on the cache device itself; nothing of the image is fetched
for that but the leaves. What looks wrong is read again through the cache, as a VM would read it:
the cache may have given its place to another block meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from virtman import plan
from virtman.agent import Agent
from virtman.attachment import Attachment
from virtman.caches import Extent
from virtman.errors import InvalidRequest, VirtmanError
from virtman.hashtree import HashTree
from virtman.layers import blocks
from virtman.naming import Device

LOG = logging.getLogger(__name__)

_MIB = 1024 * 1024
_USER = "(scrub)"
"""Uses the image meanwhile; no VM can be called so."""


@dataclass(frozen=True)
class Findings:
    """What a scrub did.

    :ivar checked: bytes that were compared
    :ivar dropped: where in the image blocks of 4 KiB were wrong
    """

    checked: int
    dropped: tuple[int, ...]


def scrub(
    attachment: Attachment, rate: float = 0, pause: Callable[[float], object] = time.sleep
) -> Findings:
    """Compare what the cache gives of an image with its hash tree; the image stays meanwhile.

    :param rate: bytes a second, at most; 0 for no limit
    :raises InvalidRequest: if the image has no hash tree
    :raises CacheUnsupported: if the cache does not tell what it holds
    """
    info = attachment.info
    if info.tree is None:
        raise InvalidRequest(
            f"image {info.name} was registered without a hash tree: nothing tells whether its "
            "blocks are right"
        )
    devices = attachment.acquire(_USER)
    try:
        found = _compare(_Scrub(attachment, devices), rate, pause)
    finally:
        attachment.release(_USER)
    if found.dropped:
        LOG.error("image %s: the cache was wrong at bytes %s", info.name, found.dropped)
    LOG.info("image %s is scrubbed: %d blocks were wrong", info.name, len(found.dropped))
    return found


class _Scrub:
    """One image: what its cache holds, its leaves, and who else has what it held."""

    def __init__(self, attachment: Attachment, devices: Mapping[Device, str]) -> None:
        name, tree = attachment.info.name, attachment.info.tree
        assert tree is not None
        self.tree: HashTree = tree
        self.member = attachment.member()
        self.held = self.member.held()
        self.cache = devices[Device(name, "cache")]
        self.leaves = devices[Device(name, "leafcache")]
        self.exports = [(path, plan.HEADER) for device, path in devices.items()
                        if device.role.startswith("export")]  # fmt: skip
        self.end = plan.padded(attachment.info.size) * plan.SECTOR

    def pieces(self) -> list[Extent]:
        """Return what the cache holds, in whole blocks, each within one group of leaves."""
        found = []
        for one in self.held.extents:
            offset = -(-one.offset // plan.BLOCK) * plan.BLOCK
            end = min(one.offset + one.length, self.end) // plan.BLOCK * plan.BLOCK
            while offset < end:
                length = min(end, offset // blocks.GROUP * blocks.GROUP + blocks.GROUP) - offset
                found.append(Extent(offset, length, one.at + offset - one.offset))
                offset += length
        return sorted(found, key=lambda one: one.offset)

    def wrong(self, piece: Extent, told: bytes) -> list[int]:
        """Return where blocks are wrong; what looks so may have been moved meanwhile."""
        suspects = blocks.wrong(
            self.held.device, piece.at, piece.length, piece.offset, told, self.tree
        )
        return [
            at for at in suspects if blocks.wrong(self.cache, at, plan.BLOCK, at, told, self.tree)
        ]

    def drop(self, offset: int) -> None:
        """Have a block fetched anew by whoever wants it next."""
        self.member.drop(offset)
        blocks.forget(offset, self.exports)


def _compare(scrub: _Scrub, rate: float, pause: Callable[[float], object]) -> Findings:
    checked, dropped = 0, set()
    group, told = -1, b""
    for piece in scrub.pieces():
        begin = time.monotonic()
        if piece.offset // blocks.GROUP != group:
            group = piece.offset // blocks.GROUP
            told = blocks.told(scrub.leaves, group)
        for one in scrub.wrong(piece, told):
            scrub.drop(one)
            dropped.add(one)
        checked += piece.length
        if rate:
            pause(max(0.0, piece.length / rate - (time.monotonic() - begin)))
    return Findings(checked, tuple(sorted(dropped)))


class Scrubbing:
    """A thread that scrubs all attached images, one after another, again and again.

    :param interval: seconds from one round to the next; 0 for never
    :param rate: MiB a second
    """

    def __init__(self, agent: Agent, interval: float, rate: float) -> None:
        self.agent = agent
        self.interval = interval
        self.rate = rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scrub", daemon=True)

    def start(self) -> None:
        """Begin, unless it is never."""
        if self.interval:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; a round that is under way ends with the process."""
        self._stopped.set()

    def round(self) -> None:
        """Scrub each image once."""
        for one in self.agent.attachments():
            if one.info.tree is None:
                continue
            try:
                scrub(one, self.rate * _MIB, self._stopped.wait)
            except VirtmanError as err:
                LOG.warning("scrubbing image %s: %s", one.info.name, err)

    def _run(self) -> None:
        while not self._stopped.wait(self.interval):
            try:
                self.round()
            except Exception:
                LOG.exception("scrubbing")
