"""What a plan consists of: steps, each of which says what one device shall be.

Pure: a plan is data. ``planner`` makes it, ``stack`` carries it out, in order. Layers and records
have steps' names too, so a step is always written with this module: ``plan.Store``.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtman.model.address import Portal, Proof
from virtman.model.hashtree import HashTree
from virtman.model.naming import Device


@dataclass(frozen=True)
class Step:
    """One device: what makes it, what it is called, how long it is, what it lies on."""

    device: Device
    sectors: int
    below: tuple[Device, ...]


@dataclass(frozen=True)
class Path(Step):
    """A parent's disk; no portal where only the kernel knows it any more.

    The source's disk may lack the image's padding.
    """

    portal: Portal | None
    proof: Proof | None = None


@dataclass(frozen=True)
class Verity(Step):
    """What lies below, first of the two devices, verified by the hashes on the second.

    No tree where only the kernel knows it any more.
    """

    tree: HashTree | None


@dataclass(frozen=True)
class Multipath(Step):
    """The paths of one stripe, best first.

    :ivar queues: whether reads wait while no path works; else they fail
    :ivar read_ahead: bytes that its page cache reads before anybody wants them, if it is read so
    """

    queues: bool = True
    read_ahead: int | None = None


@dataclass(frozen=True)
class Stripe(Step):
    """All stripes, put together: pieces of the image, dealt to what lies below in turn.

    :ivar piece: bytes
    :ivar begins: for each device below, the byte on it where the image begins
    """

    piece: int
    begins: tuple[int, ...]


@dataclass(frozen=True)
class Cache(Step):
    """A member of the node's cache group.

    :ivar mark: tells the image from an earlier one of the same name
    """

    mark: str


@dataclass(frozen=True)
class Image(Step):
    """A stable device for all above to refer to, whatever it lies on; best first."""


@dataclass(frozen=True)
class Lent(Step):
    """The same for images that are based on this one; what has no answer below is an error."""


@dataclass(frozen=True)
class Mixture(Step):
    """What others lend, and the rest of the image; below are the image itself, and then lenders.

    :ivar path: of the file that tells who has what
    """

    path: str


@dataclass(frozen=True)
class Void(Step):
    """What there is in place of other stripes' regions: errors."""


@dataclass(frozen=True)
class Regions(Step):
    """One stripe of what lies below, past a header of zeros; on the void elsewhere.

    :ivar read_ahead: bytes that its page cache reads before anybody wants them
    """

    read_ahead: int


@dataclass(frozen=True)
class Export(Regions):
    """The same of the image, served.

    :ivar leaves: sectors of leaves behind the image; they are the last device below
    """

    portal: Portal
    leaves: int = 0


@dataclass(frozen=True)
class Admission(Step):
    """No device: what children must prove to log in to an export, and so to all of its target."""

    export: Export
    proof: Proof


@dataclass(frozen=True)
class Reader(Step):
    """A file, or a device, from some byte on, read-only and buffered.

    :ivar path: of what is read
    :ivar offset: bytes
    """

    path: str
    offset: int = 0


@dataclass(frozen=True)
class File(Reader):
    """A file that was made for this device, and goes with it."""


@dataclass(frozen=True)
class Direct(Reader):
    """The same past the page cache, for what is kept in memory further up."""


@dataclass(frozen=True)
class Hashes(Step):
    """The upper levels of a hash tree, and its leaves."""

    upper: int


@dataclass(frozen=True)
class Base(Step):
    """An image, and zeros behind it, which have no end for any VM.

    :ivar end: sector at which the zeros begin
    """

    end: int


@dataclass(frozen=True)
class Over(Step):
    """The base of an image's parent, and over it what the image, which is a layer, holds."""


@dataclass(frozen=True)
class Store(Step):
    """What lies below, and what was written over it; in a file or on a device.

    :ivar size: bytes of what it may hold something of
    """

    path: str
    merging: bool
    size: int


@dataclass(frozen=True)
class Instance(Step):
    """A VM's own device."""


@dataclass(frozen=True)
class Source(Step):
    """A raw file or block device that has all of the image."""

    path: str
    portal: Portal


Plan = tuple[Step, ...]
