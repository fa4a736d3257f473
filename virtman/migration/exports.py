"""Layers as files that go elsewhere, and come back: packed and unpacked as they pass."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import zstandard

from virtman import sparse
from virtman.disk.layers import Commit, Layers
from virtman.errors import LayerFileInvalid
from virtman.model import layer_file, layer_format
from virtman.model.layer_file import Label
from virtman.model.layer_format import Description

_PIECE = 1024 * 1024
_LEVEL = 3
_BITE = 2048  # bytes of a file at a time; there may be 64 MiB in so many


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
    with layers.making(name, label.length) as into, tree.making() as builder:
        at = 0
        for piece in _unpacked(packed):
            if at + len(piece) > label.length:
                raise _wrong(f"it has more than {label.length} bytes")
            builder.add(piece)
            if any(piece):
                os.pwrite(into, piece, at)
            at += len(piece)
        if at != label.length:
            raise _wrong(f"it has {at} bytes instead of {label.length}")
        hashes = builder.end()
        if hashes[0].root != label.root:
            raise _wrong(f"its root hash is {hashes[0].root} instead of {label.root}")
        said = layer_format.describe(
            os.pread(into, layer_format.DESCRIPTION, layer_format.DESCRIPTION)
        )
        if said != Description(label.parent, label.parent_origin, label.disk_size):
            raise _wrong("its label is not of the layer in it")
    tree.keep(hashes, str(layers.file(name)))


def _unpacked(packed: IO[bytes]) -> Iterator[bytes]:
    """Return what is in a frame of zstd that has an end, and nothing behind that."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        while some := packed.read(_BITE):
            if frame.eof:
                raise _wrong("there is more behind its end")
            yield frame.decompress(some)
    except zstandard.ZstdError as err:
        raise _wrong(str(err)) from err
    if not frame.eof or frame.unused_data:
        raise _wrong("its end is not where it should be")


def _zeros(length: int) -> Iterator[bytes]:
    for start in range(0, length, _PIECE):
        yield bytes(min(_PIECE, length - start))


def _wrong(why: str) -> LayerFileInvalid:
    return LayerFileInvalid(f"the file was changed, or is not all there ({why}): copy it anew")
