"""Writes a layer: what a VM wrote, and its memory if it is suspended, as its copy has them."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace

from virtman.disk.layers import Commit, Layers
from virtman.migration.bases import Bases
from virtman.migration.rounds import Rounds
from virtman.migration.suspensions import Memory
from virtman.model import dirty, layer_format, suspended
from virtman.model.chain import Snapshot
from virtman.model.dirty import CHUNK
from virtman.model.layer_format import Description
from virtman.node.agent import Agent


class Content:
    """What a layer is to have, looked up at one moment.

    :param given: how the commit is on record
    :ivar commit: the same with what the layer lies on
    :ivar total: bytes that are read for it
    :ivar length: bytes of the layer
    """

    def __init__(self, agent: Agent, layers: Layers, given: Commit) -> None:
        bases = Bases(agent.images, layers)
        self._layers = layers
        self._copy = agent.records.get(given.copy)
        self._rounds = Rounds(agent.stores, given.copy)
        since = _since(agent, layers, given)
        base = bases.of(given, self._copy, self._rounds.changed(self._copy, since))
        self._changed = base.changed
        saved = given.suspended
        if saved is not None:
            saved = replace(saved, at=suspended.place(bases.depth(base.image)))
        # the VM may have grown before
        self.commit = replace(
            given, image=base.image, origin=base.origin, disk_size=self._copy.size, suspended=saved
        )
        self._memory = Memory(layers, self.commit)
        self._numbers = array("Q", dirty.numbers(self._changed))  # of a large disk: millions
        self._numbers.extend(self._memory.chunks)
        self.total = len(self._numbers) * CHUNK
        self.length = layer_format.length(len(self._numbers))

    def write(self, advance: Callable[[int], object]) -> None:
        """Write it into the layer's file, and keep its hash tree.

        :param advance: is told of further bytes that were read; ends it by what it raises
        :raises NoSpace: if it does not fit
        """
        name, commit = self.commit.name, self.commit
        described = Description(commit.image, commit.origin, commit.disk_size, commit.suspended)
        chunks = self._chunks(advance)
        tree = self._layers.tree(name)
        with self._layers.making(name, self.length) as into, tree.making() as builder:
            at = 0
            for piece in layer_format.pieces(described, self._numbers, chunks):
                os.pwrite(into, piece, at)
                builder.add(piece)
                at += len(piece)
                self._layers.grew(name, at)
            hashes = builder.end()
        tree.keep(hashes, str(self._layers.file(name)))

    def _chunks(self, advance: Callable[[int], object]) -> Iterator[bytes]:
        for portion in dirty.portions(self._changed, self._copy.size):
            content = self._rounds.read(self._copy, portion.runs)
            for start in range(0, len(content), CHUNK):
                yield content[start : start + CHUNK]
            advance(len(content))
        for content in self._memory.content():
            yield content
            advance(CHUNK)


def _since(agent: Agent, layers: Layers, commit: Commit) -> Snapshot | None:
    """Return what is held of the checkpoint since which the changes make this one."""
    if not commit.since:
        return None
    return agent.records.snapshot(layers.get(commit.since).held)
