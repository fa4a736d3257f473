"""What the agent answers over its socket: JSON objects with these members.

They are the JSON itself, so that ``--json`` prints what came, and whoever stands in for the agent
in a test of nova need not know these types. Sizes are bytes.
"""

from __future__ import annotations

from typing import TypedDict


class StoreAnswer(TypedDict):
    """An exception store of a VM or snapshot; ``merging`` into the one before it."""

    path: str
    allocated: int
    merging: bool


class VmAnswer(TypedDict):
    """A VM. Its ``taken`` is None while nobody can tell, its ``quota`` 0 for none."""

    vm: str
    image: str
    device: str
    size: int
    state: str
    taken: int | None
    quota: int
    temporary: bool
    stores: list[StoreAnswer]
    snapshots: list[str]


class SnapshotAnswer(TypedDict):
    """A snapshot; ``created_at`` is a moment of RFC 3339."""

    snapshot: str
    vm: str
    image: str
    size: int
    created_at: str
    stores: list[StoreAnswer]


class LayerAnswer(TypedDict):
    """A layer that this node has made, or makes; ``created_at`` is a moment of RFC 3339.

    ``state`` is "reading" or "saving" as a VM's memory is, "copying", "hashing", "serving", "kept"
    or "failed", with the error's ``code``.
    """

    layer: str
    image: str
    vm: str
    disk_size: int
    final: bool
    created_at: str
    state: str
    done: int
    total: int
    length: int
    note: str
    code: str


class CheckpointsAnswer(TypedDict):
    """A VM of which checkpoints are made: every so many seconds, or 0 if each is asked for.

    ``layers`` are those that there are, the earliest first; ``created_at`` is when the latest was
    begun, a moment of RFC 3339, or None.
    """

    vm: str
    every: int
    keep: int
    layers: list[str]
    created_at: str | None
    note: str


MoveAnswer = TypedDict(
    "MoveAnswer",
    {
        "vm": str,
        "kind": str,
        "live": bool,
        "host": str,
        "as": str,
        "round": int,
        "state": str,
        "sent": int,
        "wire": int,
        "left": int,
        "pause": float | None,
        "note": str,
        "code": str,
    },
)
"""How far a VM is on its way: see ``virtman.migration.sender.Status``."""


class CacheAnswer(TypedDict):
    """What became of reads."""

    hits: int
    misses: int
    bypassed: int


class AheadAnswer(TypedDict):
    """What is fetched ahead of VMs, and how far that is: see ``virtman.image.prefetch.Ahead``."""

    state: str
    wanted: int
    there: int
    fetched: int
    used: int
    missed: int
    strange: int
    head: int
    seconds: float
    window: int
    verdict: str


class CopyAnswer(TypedDict):
    """How far the copy of a whole image is: see ``virtman.image.whole.Progress``."""

    state: str
    wanted: int
    there: int
    fetched: int
    checked: int
    rate: int
    held_back: bool
    verdict: str


class BasedAnswer(TypedDict):
    """On which images one is based; it has ``shared`` bytes in common with them."""

    images: list[str]
    shared: int


class ImageAnswer(TypedDict):
    """An image that is attached; ``instances`` are the VMs that use it.

    It is ``local`` if all of it is here, and it is read from its ``copy``. Of the images on which
    it is ``based``, the ``lenders`` are those from which it reads what both have. For ``waiting``
    seconds reads have had no answer from its parents.
    """

    image: str
    size: int
    parent: str | None
    generation: int
    parents: list[str]
    instances: list[str]
    warm: bool
    local: bool
    based: BasedAnswer | None
    lenders: list[str]
    waiting: float
    cache: CacheAnswer
    ahead: AheadAnswer | None
    copy: CopyAnswer | None


class WantAnswer(TypedDict):
    """An image that somebody waits for, and how far it is.

    Its ``state`` is known, wanted (nobody makes it yet), running or failed. Its ``size`` is None
    until it is known. ``done`` and ``total`` are bytes of the step that ``detail`` names; if it
    failed, that says why. ``importer`` is None while nobody makes it.
    """

    image: str
    state: str
    size: int | None
    importer: str | None
    done: int
    total: int
    detail: str


class RecordingAnswer(TypedDict):
    """What was recorded of a VM: see ``virtman.background.recordings.Recorded``."""

    vm: str
    image: str
    workload: str
    state: str
    pieces: int
    bytes: int
    seconds: float
    runs: int
    detail: str


class ScrubAnswer(TypedDict):
    """What a scrub did: how much was compared, and at which bytes blocks were dropped."""

    checked: int
    dropped: list[int]


class SpaceAnswer(TypedDict):
    """What there is for new exception stores, and what was promised of it."""

    free: int
    promised: int


class VolumeAnswer(TypedDict):
    """A volume with the cache before it; ``dirty`` is in the cache alone."""

    volume: str
    device: str
    size: int
    mode: str
    state: str
    dirty: int
    cache: CacheAnswer


class DifferenceAnswer(TypedDict):
    """Something that is not as it shall be, and what mends it."""

    code: str
    what: str
    meaning: str
    repair: str


class CheckAnswer(TypedDict):
    """What differed, and what still does."""

    found: list[DifferenceAnswer]
    left: list[DifferenceAnswer]
