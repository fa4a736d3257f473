"""Which hosts shall warm an image, and how far they are."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Warming(StrEnum):
    """How far a host is with warming an image."""

    ASKED = "asked"
    FETCHING = "fetching"
    WARM = "warm"
    FAILED = "failed"

    @property
    def is_end(self) -> bool:
        """Whether nothing more comes."""
        return self in (Warming.WARM, Warming.FAILED)


@dataclass(frozen=True)
class Wish:
    """An image that a host shall warm for a workload; no other wish has its ``generation``."""

    image: str
    workload: str
    generation: int


@dataclass(frozen=True)
class Warmup:
    """What a host was asked, and how far it says that it is.

    ``wanted`` is the bytes that the workload's profile names, ``there`` those of them that the
    host has. ``detail`` says why it failed. ``attached`` is false once the host has left the
    image: what it had fetched is then no more at hand.
    """

    host: str
    workload: str
    state: Warming
    wanted: int
    there: int
    detail: str
    asked_at: datetime
    attached: bool


@dataclass(frozen=True)
class Chosen:
    """Which hosts are meant: these, or those of a rack; all that Volt knows if neither."""

    hosts: tuple[str, ...] | None = None
    rack: str | None = None


@dataclass(frozen=True)
class Progress:
    """How far a host says that it is with a wish; ``wanted`` and ``there`` in bytes."""

    generation: int
    state: Warming
    wanted: int
    there: int
    detail: str
