"""Layers as files that go elsewhere, and come back: packed and unpacked as they pass."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import zstandard

from virtman import sparse, unpacking
from virtman.disk.layers import Commit, Layers
from virtman.model import layer_file
from virtman.model.layer_file import Label

_PIECE = 1024 * 1024
_LEVEL = 3


def pack(layers: Layers, commit: Commit) -> Iterator[bytes]:
    """Return the file of a kept layer, in pieces. It may be removed meanwhile."""
    path = layers.file(commit.name)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        length = os.fstat(descriptor).st_size
        tree, _ = layers.tree(commit.name).of(str(path), length, lambda *_: None)
        yield layer_file.line(
            Label(commit.name, tree.root, length, commit.image, commit.origin, commit.disk_size)
        )
        packing = zstandard.ZstdCompressor(_LEVEL, write_checksum=True).compressobj(length)
        runs = sparse.runs(descriptor, 0, length)
        for piece in sparse.pieces(descriptor, runs, 0, length):
            for part in _zeros(piece) if isinstance(piece, int) else (piece,):
                if packed := packing.compress(part):
                    yield packed
        yield packing.flush()
    finally:
        os.close(descriptor)


def unpack(label: Label, packed: IO[bytes], layers: Layers, name: str) -> None:
    """Have the bytes of a layer on this node, if they are right.

    :param packed: what follows the label
    :raises LayerFileInvalid: if they are not
    :raises NoSpace: if they do not fit
    """
    tree = layers.tree(name)
    with layers.making(name, label.length) as into:
        hashes = unpacking.unpack(label, packed, into, tree)
    tree.keep(hashes, str(layers.file(name)))


def _zeros(length: int) -> Iterator[bytes]:
    for start in range(0, length, _PIECE):
        yield bytes(min(_PIECE, length - start))
