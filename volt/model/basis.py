"""Which bytes say what an image has in common with others, and what Volt reads of them.

Whoever serves the image writes them, and agents read them. Volt reads the head alone:

    0    4       5          37          69       77      78
    +----+-------+----------+-----------+--------+-------+---------------------+------
    |VMBS|version| checksum | root hash | shared | count | name, root hash ... | runs
    +----+-------+----------+-----------+--------+-------+---------------------+------

The checksum is the SHA-256 of what follows it. ``shared`` is how many blocks the image has in
common with the others, of which there are ``count``; a name has 48 bytes.
"""

import base64
import hashlib
import struct
from dataclasses import dataclass, field
from typing import Final

from volt.errors import BasisInvalid
from volt.model.names import check_name

MAGIC: Final = b"VMBS"
VERSION: Final = 1
BLOCK: Final = 4096  # bytes
OTHERS: Final = 4
"""Images on which one may be based; hosts take no more."""
LARGEST: Final = 1024 * 1024  # bytes, with the head

_CHECKSUM: Final = slice(5, 37)
_BODY: Final = 37
_FIXED: Final = struct.Struct("<32sQB")
_OTHER: Final = struct.Struct("<48s32s")


@dataclass(frozen=True)
class Other:
    """An image on which another is based; its root hash is in hexadecimal digits."""

    name: str
    root_hash: str


@dataclass(frozen=True)
class NewBasis:
    """What an image has in common with others; the head is right.

    ``root_hash`` is that of the image, ``shared`` are the bytes that the others have.
    """

    root_hash: str
    shared: int
    others: tuple[Other, ...]
    content: bytes = field(repr=False)


NONE: Final = NewBasis("", 0, (), b"")
"""That of an image which has nothing in common with others any more."""


def parse(text: str) -> NewBasis:
    """Read the head of a basis, which is in base64; raises BasisInvalid, NameInvalid."""
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError as err:
        raise BasisInvalid(f"the basis is not base64: {err}") from err
    if len(content) > LARGEST:
        raise BasisInvalid(f"a basis has at most {LARGEST} bytes, this one has more")
    begin = _BODY + _FIXED.size
    if len(content) < begin or not content.startswith(MAGIC):
        raise BasisInvalid(
            f"this is no basis: it does not begin with {MAGIC.decode()} and a head; send what "
            "'virtman source add' wrote"
        )
    if content[len(MAGIC)] != VERSION:
        raise BasisInvalid(
            f"the basis is of version {content[len(MAGIC)]}, but Volt knows version {VERSION} "
            "only: upgrade Volt"
        )
    if hashlib.sha256(content[_BODY:]).digest() != content[_CHECKSUM]:
        raise BasisInvalid("the basis does not have its checksum: it was damaged, send it again")
    root, shared, count = _FIXED.unpack_from(content, _BODY)
    end = begin + count * _OTHER.size
    if not 1 <= count <= OTHERS:
        raise BasisInvalid(f"the basis names {count} images, and may name 1 to {OTHERS}")
    if len(content) < end:
        raise BasisInvalid(f"the basis names {count} images and ends before them")
    others = tuple(_other(*words) for words in _OTHER.iter_unpack(content[begin:end]))
    if len({other.name for other in others}) < count:
        names = ", ".join(other.name for other in others)
        raise BasisInvalid(f"the basis names an image twice: {names}")
    return NewBasis(root.hex(), shared * BLOCK, others, content)


def _other(name: bytes, root: bytes) -> Other:
    return Other(check_name("image", name.rstrip(b"\0").decode("ascii", "replace")), root.hex())
