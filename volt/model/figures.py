"""What happened, and how much there is of everything: for those who watch Volt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from volt.model.caps import Cap
from volt.model.copies import Copies


@dataclass(frozen=True)
class Event:
    """Something that happened; ``id`` rises."""

    id: int
    at: datetime
    kind: str
    image: str | None
    host: str | None
    detail: str


@dataclass(frozen=True)
class Figures:
    """How much there is of everything at this moment, for those who watch Volt.

    ``places`` counts hosts by image and state, ``depths`` gives the deepest host's depth by
    image and stripe (or more, where there are racks), ``generations`` are by image. ``caps`` are
    all that there are. ``holds`` counts, by image, the hosts that need it, and those of them that
    have expired. ``copies`` are those of all of an image, and of each stripe, by image; ``wanted``
    is how many there shall be. ``reads`` are those that caches of hosts answered, and could not,
    as hosts said last, by image. ``sources_gone`` has the images whose source was removed, and
    whether a host stands for it.
    """

    hosts: int
    draining: int
    overloaded: int
    places: Mapping[tuple[str, str], int]
    depths: Mapping[tuple[str, int], int]
    generations: Mapping[str, int]
    caps: Sequence[Cap]
    holds: Mapping[str, tuple[int, int]]
    copies: Mapping[str, Copies]
    wanted: Mapping[str, int]
    reads: Mapping[str, tuple[int, int]]
    sources_gone: Mapping[str, bool]
