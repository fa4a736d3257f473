"""Unpacks the file of a layer that was exported, and checks that its bytes are right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

import zstandard

from virtman.errors import LayerFileInvalid
from virtman.kept_tree import Hashes, KeptTree
from virtman.model import layer_format
from virtman.model.layer_file import Label
from virtman.model.layer_format import Description

_BITE = 2048  # bytes of a file at a time; there may be 64 MiB in so many


def unpack(label: Label, packed: IO[bytes], into: int, tree: KeptTree) -> Hashes:
    """Write the bytes of a layer, and return their hashes; the leaves are in the tree's file then.

    :param packed: what follows the label
    :param into: descriptor of a file of zeros
    :raises LayerFileInvalid: if they are not right
    """
    with tree.making() as builder:
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
        said = layer_format.describe(lambda at, size: os.pread(into, size, at))
        wanted = Description(label.parent, label.parent_origin, label.disk_size)
        if said is None or replace(said, suspended=None) != wanted:
            raise _wrong("its label is not of the layer in it")
    return hashes


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


def _wrong(why: str) -> LayerFileInvalid:
    return LayerFileInvalid(f"the file was changed, or is not all there ({why}): copy it anew")
