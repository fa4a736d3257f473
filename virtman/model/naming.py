"""How devices and files are called, and what a name says about its owner.

Every name is made of parts that can be taken apart again, so that an agent which
restarts finds its stack by looking at the kernel::

    virtman_<image>_<role>[_<argument>]      a device-mapper device of an image
    virtman_<role>                           one of the node itself

Image, host and VM names never contain an underscore or a colon: those separate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from virtman.errors import InvalidName

PREFIX = "virtman"
MAPPER = "/dev/mapper/"
CACHE_GROUP = f"{PREFIX}_cachegroup"

NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,46}[a-z0-9])?")
"""Of an image, a host or a VM."""

_ROLE = re.compile(r"[a-z]+[0-9]*")


@dataclass(frozen=True)
class Device:
    """The parts of a device-mapper name."""

    image: str
    role: str
    argument: str = ""

    def __str__(self) -> str:
        """Return the name as the kernel knows it."""
        parts = [PREFIX, self.image, self.role]
        if self.argument:
            parts.append(self.argument)
        return "_".join(parts)

    @property
    def node(self) -> str:
        """Path of the device node."""
        return MAPPER + str(self)


def check(kind: str, name: str) -> str:
    """Return ``name`` if it can be the name of an image, a host or a VM.

    :param kind: what is named, for the message ("image", "host", "VM")
    :raises InvalidName: with the rule
    """
    if not NAME.fullmatch(name):
        raise InvalidName(
            f"{kind} name {name!r} is not allowed: use 1 to 48 lower-case letters, digits, "
            "dots and dashes, beginning and ending with a letter or digit"
        )
    return name


def parse(name: str) -> Device | None:
    """Take a device-mapper name apart; None if it is not an image's device of ours."""
    parts = name.split("_")
    if not 3 <= len(parts) <= 4 or parts[0] != PREFIX or not _ROLE.fullmatch(parts[2]):
        return None
    if not all(NAME.fullmatch(part) for part in (parts[1], *parts[3:])):
        return None
    return Device(*parts[1:])
