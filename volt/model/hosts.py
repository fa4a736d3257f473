"""Hosts: what they report, how they are connected and known, and what is news to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from volt.model.placements import Placement


@dataclass(frozen=True)
class Wiring:
    """How a host is connected: the label of its rack, and the speed of its link in bytes/s.

    None is what is not known.
    """

    rack: str | None = None
    speed: int | None = None


@dataclass(frozen=True)
class ImageReport:
    """What a host has done with an image: bytes sent to children, reads by its cache.

    ``ahead`` tells whether it fetches ahead of its VMs now. ``copied`` is how many bytes of a copy
    of all of it are there, and ``complete`` are the stripes of which the copy has all; the host
    needs no parents once the copy is ``whole``. It ``declines`` to make one that it cannot, or that
    was given back there a moment ago. ``waits`` tells whether its VMs spend a good part of the
    time on reads that take long.
    """

    generation: int
    sent: int = 0
    hits: int = 0
    misses: int = 0
    ahead: bool = False
    copied: int = 0
    whole: bool = False
    complete: tuple[int, ...] = ()
    declines: bool = False
    waits: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "ImageReport":
        """Return the report that JSON says, which knows no tuples."""
        return cls(**{**fields, "complete": tuple(fields.get("complete", ()))})


@dataclass(frozen=True)
class Report:
    """A heartbeat: the whole state of a host; network traffic in bytes a second.

    ``disks`` is how many VMs and snapshots the host has, by image; 0 if it waits for the image.
    ``room`` is the bytes that copies of whole images could still take.
    """

    images: Mapping[str, ImageReport]
    received_rate: int = 0
    sent_rate: int = 0
    overloaded: bool = False
    disks: Mapping[str, int] = field(default_factory=dict)
    room: int = 0


@dataclass(frozen=True)
class Host:
    """A host as it last reported; ``silent`` is the seconds since then, as Volt counts.

    ``rack`` and ``speed`` are those of its wiring.
    """

    host: str
    rack: str | None
    speed: int | None
    draining: bool
    silent: int
    report: Report


@dataclass(frozen=True)
class News:
    """What a host that reported its generations does not know yet.

    ``shares`` are the bytes a second that it may fetch ahead, of images to which a cap applies.
    ``read`` are images in which it fetches ahead, and VMs of any host wait for what they read.
    """

    placements: tuple[Placement, ...]
    unknown: tuple[str, ...]
    shares: Mapping[str, int] = field(default_factory=dict)
    read: tuple[str, ...] = ()


class Reason(StrEnum):
    """What a host says is wrong with its parent."""

    SILENT = "silent"
    CORRUPT = "corrupt"


class Verdict(StrEnum):
    """What Volt makes of a report.

    A silent parent is *dead* or *alive*, or that is *unclear*; that a parent sends wrong bytes
    is *noted*, or it is *drained* because others have said so too.
    """

    DEAD = "dead"
    ALIVE = "alive"
    UNCLEAR = "unclear"
    NOTED = "noted"
    DRAINED = "drained"


@dataclass(frozen=True)
class Certificate:
    """A host's certificate, and that of the authority that signed it; both PEM."""

    certificate: str
    authority: str
    expires_at: datetime


@dataclass(frozen=True)
class Listener:
    """Where a host's agent takes calls of others; only over TLS, with a certificate."""

    host: str
    ip: str
    port: int
