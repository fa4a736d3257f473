"""What the file of a layer that was exported begins with: a line that says what it is of.

Pure. Behind the line are the bytes of the layer, as ``layer_format`` says, in one frame of zstd.
The root hashes tell whether these are right, and which image the layer lies on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from virtman.errors import LayerFileInvalid
from virtman.model import hashtree

LONGEST = 4096
"""Bytes of the line."""

_MARK = "virtman layer file 1"
_BEGIN = b'{"format": "virtman layer file '


@dataclass(frozen=True)
class Label:
    """What a file is of.

    :ivar layer: the name that it had
    :ivar root: root hash of its bytes
    :ivar length: bytes
    :ivar parent: name of the image that it lies on
    :ivar parent_origin: the root hash of that; of an image without one, what stands for it at Volt
    :ivar disk_size: bytes of the VM's disk
    """

    layer: str
    root: str
    length: int
    parent: str
    parent_origin: str
    disk_size: int


def line(label: Label) -> bytes:
    """Return the begin of a file."""
    return json.dumps({"format": _MARK} | asdict(label)).encode() + b"\n"


def is_begin(text: bytes) -> bool:
    """Tell whether a file that begins so is of a layer, of whatever version."""
    return text.startswith(_BEGIN)


def understand(text: bytes) -> Label:
    """Return what the begin of a file says.

    :raises LayerFileInvalid: if it is of no layer, or has another version
    """
    try:
        found = json.loads(text)
        mark = found.pop("format")
        if mark != _MARK:
            raise LayerFileInvalid(f"the file is a {mark!r}, not a {_MARK!r}: import it elsewhere")
        label = Label(**found)
        kinds = {name: type(value) for name, value in asdict(label).items()}
        if kinds != _KINDS or not hashtree.has_tree(label.length):
            raise ValueError(f"{label}")
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise LayerFileInvalid("the file is none that 'virtman layer export' has written") from err
    return label


_KINDS = {name: type(value) for name, value in asdict(Label("", "", 0, "", "", 0)).items()}
