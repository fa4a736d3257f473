"""Images that hosts wait for, and that importers make."""

from dataclasses import dataclass
from enum import StrEnum


class Importing(StrEnum):
    """How far an image is that hosts wait for."""

    WANTED = "wanted"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True)
class Told:
    """What an importer says of an image; ``done`` and ``total`` in bytes of the present step.

    ``detail`` is that step, or why it failed.
    """

    importer: str
    state: Importing
    done: int
    total: int
    detail: str


@dataclass(frozen=True)
class Import:
    """An image that hosts wait for, or that an importer makes; Volt does not know it yet.

    It is wanted as long as any importer may begin: also if the last one fell silent, or failed a
    while ago. ``done`` and ``total`` are bytes of the step that ``detail`` names, or named last; if
    it failed, that says why. ``waiting`` is how many hosts wait, ``silent`` the seconds since the
    importer said this.
    """

    image: str
    state: Importing
    importer: str | None
    done: int
    total: int
    detail: str
    waiting: int
    silent: int | None
