"""A guest that says three lines on its console and does nothing: its processor time is not missed.

For tests of what a cloud does with servers, whatever these run.
"""

import struct
from pathlib import Path

SIZE = 64 << 20  # bytes

_LINES = b"The firmware has read this disk.\r\nNothing more is on it.\r\nThe processor halts.\r\n"
_BEGIN = 0x7C00  # where the firmware puts the first sector
_CODE = bytes.fromhex(
    "31c0"  # xor ax, ax
    "8ed8"  # mov ds, ax
    "be147c"  # mov si, the lines: right behind the code
    "baf803"  # mov dx, port of the first serial line
    "ac"  # lodsb
    "84c0"  # test al, al
    "7403"  # jz halt
    "ee"  # out dx, al
    "ebf8"  # jmp back to lodsb
    "fa"  # halt: cli
    "f4"  # hlt
)
# Nova takes no disk with a signature and without a partition. This one is all behind the sector.
_PARTITION = struct.pack("<B3sB3sII", 0x80, bytes(3), 0x83, bytes(3), 1, SIZE // 512 - 1)
_PARTITIONS = 446  # where the table of four begins
_SIGNATURE = b"\x55\xaa"


def write(file: Path) -> None:
    """Write its raw disk."""
    assert _BEGIN + len(_CODE) == 0x7C14
    sector = (_CODE + _LINES + b"\0").ljust(_PARTITIONS, b"\0") + _PARTITION
    sector = sector.ljust(510, b"\0") + _SIGNATURE
    with file.open("wb") as disk:
        disk.write(sector)
        disk.truncate(SIZE)
