"""Finds what has rotted in a node's cache, and drops just those blocks.

What comes from parents is verified on its way into the cache, but not what comes out of it:
a local disk that forgets gives a VM wrong bytes. A scrub reads an image through its cache and
compares each block with the leaves of the hash tree. A block that differs is dropped, and fetched
again by whoever wants it next.

Only the cache itself knows what it holds: bcache keeps the newest part of that in memory. So a
scrub fetches the rest of the image, which is then cached too.
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
    """One image: its cache, its leaves, and who else has what the cache held."""

    def __init__(self, attachment: Attachment, devices: Mapping[Device, str]) -> None:
        name, tree = attachment.info.name, attachment.info.tree
        assert tree is not None
        self.tree: HashTree = tree
        self.member = attachment.member()
        self.cache = devices[Device(name, "cache")]
        self.leaves = devices[Device(name, "leafcache")]
        self.exports = [(path, plan.HEADER) for device, path in devices.items()
                        if device.role.startswith("export")]  # fmt: skip
        self.size = plan.padded(attachment.info.size) * plan.SECTOR

    def pieces(self) -> list[tuple[int, int]]:
        """Return offset and length of what is to be compared, a group of leaves at a time."""
        end = self.size if self.member.can_drop() else 0
        starts = range(0, end, blocks.GROUP)
        return [(offset, min(blocks.GROUP, end - offset)) for offset in starts]

    def wrong(self, offset: int, length: int) -> list[int]:
        """Return where blocks of a piece are wrong."""
        told = blocks.told(self.leaves, offset // blocks.GROUP)
        return blocks.wrong(self.cache, offset, length, told, self.tree)

    def drop(self, offset: int) -> None:
        """Have a block fetched anew by whoever wants it next."""
        self.member.drop(offset)
        blocks.forget(offset, self.exports)


def _compare(scrub: _Scrub, rate: float, pause: Callable[[float], object]) -> Findings:
    checked, dropped = 0, []
    for offset, length in scrub.pieces():
        begin = time.monotonic()
        for one in scrub.wrong(offset, length):
            scrub.drop(one)
            dropped.append(one)
        checked += length
        if rate:
            pause(max(0.0, length / rate - (time.monotonic() - begin)))
    return Findings(checked, tuple(dropped))


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
