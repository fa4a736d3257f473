"""What nodes know of a VM on its way from one to the other, and who owns its data when.

A VM's data go in rounds. The first has all that the VM ever wrote; each further one, of a VM
that moves, what it wrote while the round before was sent. A round is the time between two
snapshots: the exception stores that lie between them say which chunks changed. The last round is
what was written since the last snapshot, sent while the VM's I/O is held back::

    source                                    destination
    ======                                    ===========
    Move is written               offer ->    Arrival and VM are written, a store is made
    snapshot 0, snapshot 1 ...   pieces ->
                                 settle ->    Arrival says what is on the disk
    VM held, last pieces       complete ->    Arrival says that all is on the disk
    Move says "handed"          [the hand-over: one file is renamed]
                              activate ->    Arrival is forgotten: the VM is as any other
    VM, snapshots, Move go

The source owns the data until its record says "handed", and whatever fails before that the VM
goes on there. From then on the destination owns them: the source never lets the VM write again
and says "activate" until that is answered. Between the two moments no VM runs. Each side's record
is enough to go on from after a restart; the destination drops an arrival only if the source says
that it knows no such move. A copy is activated without a hand-over: the source gives nothing up.

A VM that moves live is handed over only when the source is told to, as its memory goes another
way. Rounds go on until then. The destination has a device for it from the first offer on, which
whoever starts the VM there can open; it fails all reads and writes until "activate" gives it the
VM's data.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSION = 3
"""Of what agents say to each other."""


@dataclass(frozen=True)
class Move:
    """A VM on its way from this node, or a copy of it.

    :ivar id: tells it from all other moves
    :ivar host: whereto
    :ivar name: of the VM there
    :ivar keeps: whether it is a copy that goes
    :ivar round: the last one that was begun
    :ivar handed: whether the destination owns the data
    :ivar live: whether it is handed over only when the source is told to
    :ivar cancelled: whether the VM shall stay, or the copy go
    """

    vm: str
    id: str
    host: str
    name: str
    keeps: bool
    round: int = 0
    handed: bool = False
    live: bool = False
    cancelled: bool = False

    def snapshot(self, number: int) -> str:
        """Return the name of the snapshot at the end of a round; nobody can choose such a name."""
        return f"{self.prefix}{number}"

    @property
    def prefix(self) -> str:
        """What the names of all its snapshots begin with."""
        return f"move_{self.vm}_"


@dataclass(frozen=True)
class Arrival:
    """A VM on its way to this node.

    :ivar id: of the move
    :ivar host: whence
    :ivar round: the last one that was begun
    :ivar done: chunk before which all of that round is on the disk
    :ivar complete: whether all data are on the disk
    :ivar live: whether it has a device already, without data
    """

    vm: str
    id: str
    host: str
    round: int = -1
    done: int = 0
    complete: bool = False
    live: bool = False


@dataclass(frozen=True)
class Offer:
    """What a source says of a VM that it wants to send.

    :ivar id: of the move
    :ivar origin: tells the image from others of that name
    :ivar round: the one that begins
    :ivar live: whether it moves live
    :ivar begins: whether nothing was sent yet: later, a destination that knows nothing of the move
        has lost what it was sent, or was told not to take it
    """

    version: int
    id: str
    image: str
    size: int
    origin: str
    quota: int
    round: int
    live: bool
    begins: bool


@dataclass(frozen=True)
class Standing:
    """A destination's answer to an offer.

    :ivar attempt: to be named with each piece: those of earlier attempts count no more
    :ivar done: chunk from which on the round is wanted
    :ivar active: whether the VM is there already, complete and its own
    """

    attempt: int
    done: int
    active: bool


@dataclass(frozen=True)
class Piece:
    """Part of a round; its bytes are sent beside it.

    :ivar runs: offset and length of each, in bytes
    :ivar end: chunk before which the round is done with this
    :ivar digest: SHA-256 of the bytes, before they were compressed
    """

    id: str
    attempt: int
    runs: tuple[tuple[int, int], ...]
    end: int
    digest: str
