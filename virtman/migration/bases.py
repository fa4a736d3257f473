"""What a new layer lies on.

Chains stay short: where there are layers enough, the new one holds what the upper ones hold too,
and lies on the one below these::

    debian <- l1 <- l2 <- l3 <- VM         l4 lies on l2, and holds what l3 holds too

So it is with checkpoints. Of these the first leaves room for one more, and the later ones come on
top of each other. Once there is no room, a new one takes the place of the last, and of those below
that as long as each holds no more than it does itself by then. So what is written again and again
is what changed lately, and hardly ever all.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from virtman.disk.layers import Commit, Layers
from virtman.model import dirty, layer_format
from virtman.model.chain import Instance
from virtman.node.images import Images

LAYERS = 3
"""Of a chain at most: each is looked up by each read."""


@dataclass(frozen=True)
class Base:
    """What a layer lies on.

    :ivar origin: tells the image from others of its name
    :ivar changed: map of the chunks in which the layer differs from that
    """

    image: str
    origin: str
    changed: bytes


class Bases:
    """For the layers that a node makes."""

    def __init__(self, images: Images, layers: Layers) -> None:
        self.images = images
        self.layers = layers

    def of(self, commit: Commit, copy: Instance, changed: bytes) -> Base:
        """Return what a layer is to lie on, and what it has to hold then.

        It reads the tables of layers whose place the new one takes; that waits for parents.

        :param copy: the VM that has the data of the moment
        :param changed: map of the chunks that changed since the checkpoint on which it may lie, or
            over the image
        """
        image = commit.since or copy.image
        most = LAYERS - 1 if commit.checkpoint and not commit.since else LAYERS
        depth = self.depth(image)
        is_full = depth >= most
        while depth >= most or (is_full and self._is_checkpoint(image, commit.vm)):
            held = self._held(image, copy.size)
            if depth < most and dirty.amount(held) > dirty.amount(changed):
                break
            changed = dirty.union((changed, held))
            image = self._parent(image)
            depth -= 1
        return Base(image, self._origin(image, copy), changed)

    def depth(self, image: str) -> int:
        """Return how many layers an image consists of."""
        depth = 0
        while parent := self._parent(image):
            image, depth = parent, depth + 1
        return depth

    def _parent(self, image: str) -> str:
        """Return on which image a layer lies; empty for an image that stands for itself."""
        own = self._own(image)
        if own is not None:
            return own.image
        layer = self.images.info(image).layer
        return layer.parent if layer else ""

    def _is_checkpoint(self, image: str, vm: str) -> bool:
        own = self._own(image)
        return own is not None and own.vm == vm and own.checkpoint > 0

    def _origin(self, image: str, copy: Instance) -> str:
        if image == copy.image and copy.origin:
            return copy.origin
        if self._own(image) is None:
            return self.images.info(image).origin
        file = self.layers.file(image)
        tree, _ = self.layers.tree(image).of(str(file), file.stat().st_size, lambda *_: None)
        return tree.root

    def _held(self, image: str, size: int) -> bytes:
        """Return a map of what a layer holds: from its file, or else as VMs read it."""
        count = dirty.chunks(size)
        if self._own(image) is None:
            read = self.images.attached(image).page_caches.read
            return dirty.mark(_of_disk(layer_format.numbers(read), count), count)
        descriptor = os.open(self.layers.file(image), os.O_RDONLY | os.O_CLOEXEC)
        try:
            numbers = layer_format.numbers(
                lambda start, length: os.pread(descriptor, length, start)
            )
            return dirty.mark(_of_disk(numbers, count), count)
        finally:
            os.close(descriptor)

    def _own(self, image: str) -> Commit | None:
        found = self.layers.find(image)
        return found if found is not None and found.is_kept else None


def _of_disk(numbers: Iterator[int], count: int) -> Iterator[int]:
    """Return the chunks of a layer's disk; behind them may be those of the VM's memory."""
    return itertools.takewhile(lambda number: number < count, numbers)
