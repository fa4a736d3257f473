"""Finds what has rotted in a node's cache, and drops just those blocks.

What comes from parents is verified on its way into the cache, but not what comes out of it:
a local disk that forgets gives a VM wrong bytes. A scrub reads an image through its cache and
compares each block with the leaves of the hash tree. A block that differs is dropped, and fetched
again by whoever wants it next.

Only the cache itself knows what it holds: bcache keeps the newest part of that in memory. So a
scrub that somebody asks for fetches the rest of the image, which is then cached too. The one that
comes by itself finds out by reading one block of a group, at random: where that makes somebody
below the cache read, the group is left alone. Thus 4 KiB of 512 KiB travel for it that are not
cached; of 512 KiB that are cached in part, it is 64 KiB at most.
"""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from virtman import sysfs
from virtman.background.copying import Copying
from virtman.errors import InvalidRequest, VirtmanError
from virtman.image.attachment import Attachment
from virtman.image.comparison import Findings
from virtman.model import sizes
from virtman.model.hashtree import BLOCK, HashTree
from virtman.model.naming import Device
from virtman.node.images import Images
from virtman.periodic import Periodic
from virtman.stack import blocks

LOG = logging.getLogger(__name__)

_MIB = 1024 * 1024
_PIECE = 64 * 1024
_USER = "(scrub)"
"""Uses the image meanwhile; no VM can be called so."""


def scrub(
    attachment: Attachment, rate: float = 0, pause: Callable[[float], object] = time.sleep
) -> Findings:
    """Compare what the cache gives of an image with its hash tree; the image stays meanwhile.

    :param rate: bytes of the image a second, at most; 0 for no limit
    :raises InvalidRequest: if the image has no hash tree
    """
    info = attachment.info
    if info.tree is None:
        raise InvalidRequest(
            f"image {info.name} was registered without a hash tree: nothing tells whether its "
            "blocks are right"
        )
    work = _Scrub(attachment, attachment.acquire(_USER))
    try:
        return _compare(work, work.groups(), lambda *group: [group], rate, pause)
    finally:
        attachment.release(_USER)


def scrub_held(attachment: Attachment, rate: float, pause: Callable[[float], object]) -> Findings:
    """Compare what the cache seems to hold of an image with a hash tree, as long as VMs want it.

    Nobody waits for it who leaves the image: it ends with an error if devices go meanwhile.

    :param rate: bytes of the image a second, at most
    """
    work = _Scrub(attachment, attachment.devices)
    groups = work.groups()
    # else an agent that is often started anew never came to the end of a large image
    first = random.randrange(max(1, len(groups)))  # noqa: S311 - no secret
    groups = [*groups[first:], *groups[:first]]
    wanted = itertools.takewhile(lambda _: attachment.users, groups)
    return _compare(work, wanted, work.held, rate, pause)


class _Scrub:
    """One image: its cache, its leaves, and who else has what the cache held."""

    def __init__(self, attachment: Attachment, devices: Mapping[Device, str]) -> None:
        name, tree = attachment.info.name, attachment.info.tree
        assert tree is not None
        self.name = name
        self.tree: HashTree = tree
        self.member = attachment.member()
        self.cache = devices[Device(name, "cache")]
        self.below = devices[Device(name, "stripe")]
        self.leaves = devices[Device(name, "leafcache")]
        self.exports = [(path, sizes.HEADER) for path in attachment.exports]
        self.size = sizes.padded(attachment.info.size) * sizes.SECTOR

    def groups(self) -> list[tuple[int, int]]:
        """Return offset and length of what is to be compared, a group of leaves at a time."""
        end = self.size if self.member.can_drop() else 0
        starts = range(0, end, blocks.GROUP)
        return [(offset, min(blocks.GROUP, end - offset)) for offset in starts]

    def held(self, offset: int, length: int) -> Iterator[tuple[int, int]]:
        """Give offset and length of pieces of a group that the cache seems to hold.

        Each is read before the next one is looked for. The first that the cache lacks something
        of ends that, for not much shall be fetched; they come in another order each time.
        """
        if not self._holds(offset, length):
            return
        end = offset + length
        pieces = [(start, min(_PIECE, end - start)) for start in range(offset, end, _PIECE)]
        random.shuffle(pieces)
        for piece in pieces:
            before = sysfs.reads(self.below)
            if self._holds(*piece):
                yield piece
            if sysfs.reads(self.below) != before:
                return

    def _holds(self, offset: int, length: int) -> bool:
        """Tell whether the cache alone answers a read of one of these blocks."""
        one = offset + random.randrange(length // BLOCK) * BLOCK  # noqa: S311 - no secret
        before = sysfs.reads(self.below)
        blocks.read(self.cache, one)
        return sysfs.reads(self.below) == before

    def wrong(self, offset: int, length: int) -> list[int]:
        """Return where blocks of a group, or of a piece of one, are wrong."""
        told = blocks.told(self.leaves, offset // blocks.GROUP)
        return blocks.wrong(self.cache, offset, length, told, self.tree)

    def drop(self, offset: int) -> None:
        """Have a block fetched anew by whoever wants it next."""
        self.member.drop(offset)
        blocks.forget(offset, self.exports)


def _compare(
    scrub: _Scrub,
    groups: Iterable[tuple[int, int]],
    pieces: Callable[[int, int], Iterable[tuple[int, int]]],
    rate: float,
    pause: Callable[[float], object],
) -> Findings:
    checked, dropped = 0, []
    try:
        for offset, length in groups:
            begin = time.monotonic()
            for piece in pieces(offset, length):
                for one in scrub.wrong(*piece):
                    scrub.drop(one)
                    dropped.append(one)
                checked += piece[1]
            if rate:
                pause(max(0.0, length / rate - (time.monotonic() - begin)))
    finally:
        if dropped:
            LOG.error("image %s: the cache was wrong at bytes %s", scrub.name, tuple(dropped))
    LOG.info("image %s is scrubbed: %d bytes were compared", scrub.name, checked)
    return Findings(checked, tuple(dropped))


class Scrubbing:
    """Scrubs what is cached of attached images, one after another, again and again.

    :param interval: seconds from one round to the next; 0 for never
    :param rate: MiB a second
    """

    def __init__(self, images: Images, copying: Copying, interval: float, rate: float) -> None:
        self.images = images
        self.copying = copying
        self.interval = interval
        self.rate = rate
        # nodes that were started together do not all begin at once
        first = random.uniform(0, interval)  # noqa: S311 - no secret
        self._rounds = Periodic("scrub", self.round, interval, first=first)

    def start(self) -> None:
        """Begin, unless it is never."""
        if self.interval:
            self._rounds.start()

    def stop(self) -> None:
        """Begin no round any more; one that is under way ends with the process."""
        self._rounds.stop()

    def round(self) -> None:
        """Scrub each image once that VMs use, as far as it is cached."""
        attachments = list(self.images.attachments())
        random.shuffle(attachments)
        for one in attachments:
            if one.info.tree is None or not one.users or one.is_moving():
                continue
            try:
                self._scrub(one)
            except (VirtmanError, OSError) as err:
                if one.users:  # else it was left meanwhile
                    LOG.warning("scrubbing image %s: %s", one.info.name, err)

    def _scrub(self, attachment: Attachment) -> None:
        rate = self.rate * _MIB
        if attachment.is_local:
            name = attachment.info.name
            self.copying.scrub(name, lambda length: self._rounds.sleep(length / rate))
        else:
            scrub_held(attachment, rate, self._rounds.sleep)
