"""What a simulated kernel is made of."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
CHUNK = 65536
SSD = "/dev/ssd"
SSD_NUMBER = "259:0"
NUMBER = re.compile(r"\b\d+:\d+\b")

Row = tuple[int, int, str, str]
"""Of a table: start, length, target, parameters."""


@dataclass
class Mapping:
    """A device-mapper device.

    :ivar has_node: whether its node was made: not yet, if whoever made it was killed before
    :ivar hung: whether reads are on their way through it that have no end
    :ivar read_times: how many reads it has answered, and in how many seconds in all
    :ivar holding: whether it is being suspended, which such reads keep from its end
    :ivar failed: numbers of a multipath's paths that met an error since its last reload
    :ivar corrupt: whether a verity device has met wrong bytes
    :ivar read_ahead: bytes, for those who open it from now on
    :ivar owner: number of the account that may open its node
    :ivar pages: that the page cache holds of it
    :ivar sectors_read: of it
    :ivar area: bytes for which reads are counted together; 0 if they are not
    :ivar counts: sectors, nanoseconds, and reads by how long they took, by area
    """

    name: str
    number: str
    table: list[Row]
    read_only: bool
    has_node: bool = True
    suspended: bool = False
    hung: bool = False
    read_times: tuple[int, float] = (0, 0.0)
    holding: bool = False
    reloads: int = 0
    wiped: bool = False
    failed: set[str] = field(default_factory=set)
    corrupt: bool = False
    read_ahead: int = 128 * 1024
    owner: int = 0
    pages: set[int] = field(default_factory=set)
    sectors_read: int = 0
    area: int = 0
    counts: dict[int, tuple[int, int, list[int]]] = field(default_factory=dict)

    @property
    def below(self) -> list[str]:
        return [word for row in self.table for word in NUMBER.findall(row[3])]

    @property
    def sectors(self) -> int:
        return sum(row[1] for row in self.table)


@dataclass
class Loop:
    """A loop device.

    :ivar read_ahead: bytes, of the device that it shows
    :ivar length: bytes of the file or device when it was attached, or made longer
    """

    number: str
    path: str
    offset: int
    read_only: bool
    read_ahead: int
    length: int
    going: bool = False
    merges: bool = True


@dataclass
class Logical:
    """A logical volume; a file has what it holds."""

    number: str
    file: Path
    identity: str = ""


@dataclass
class Disk:
    """A LUN as the initiator sees it."""

    name: str
    number: str
    sectors: int
    merges: bool = True


@dataclass
class Session:
    """A session of an initiator and the disks that it brought.

    :ivar proof: user and secret that the record of its target has
    :ivar proved: those of its login, by which it is opened again
    :ivar is_lost: whether its target was away; it comes back if it lets in who proves this
    :ivar patience: seconds for which reads wait once it has lost its connection
    :ivar own_port: of its connection, at this side
    """

    key: tuple[str, int, str]
    disks: dict[int, Disk]
    proof: tuple[str, str]
    is_cut: bool = False
    is_lost: bool = False
    patience: int = 2
    own_port: int = field(default_factory=itertools.count(32768).__next__)
    proved: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.proved = self.proof


@dataclass
class Member:
    """A bcache device over a backing device.

    :ivar uuid: under which the cache keeps what it holds of it
    :ivar waits: for the set that it was a member of; until then there is no bcache device
    :ivar dirty: bytes that are in the cache alone
    """

    number: str
    backing: str
    uuid: str
    waits: bool = False
    cache_set: str | None = None
    going: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    reads: tuple[int, int, int] = (0, 0, 0)
    dirty: int = 0


@dataclass
class CacheSet:
    """A registered cache."""

    device: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Ssd:
    """What lies on the cache device: it outlives a reboot.

    :ivar holds: what a cache set has there, by the member's UUID: data of which content
    :ivar places: for UUIDs in the set's table; one that was taken is never given to another
    """

    cache_set: str = ""
    holds: dict[str, str] = field(default_factory=dict)
    places: int = 512
