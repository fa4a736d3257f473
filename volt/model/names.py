"""Which names are allowed: those of images and hosts may become part of an iSCSI name.

Racks are labels that operators give to switches, and nothing else.
"""

import re
from collections.abc import Sequence

from volt.errors import NameInvalid

PATTERN = "[a-z0-9]([a-z0-9.-]{0,46}[a-z0-9])?"
RACK = "[A-Za-z0-9._-]{1,48}"

_SHOWN = 5


def check_name(noun: str, name: str) -> str:
    """Return the name, or raise NameInvalid with the rule; noun is "image", for example."""
    if re.fullmatch(PATTERN, name) is None:
        raise NameInvalid(
            f"{noun} name {name[:64]!r} is not allowed: take 1 to 48 lower-case letters, digits, "
            "dots and dashes, with a letter or digit first and last"
        )
    return name


def check_rack(name: str) -> str:
    """Return a rack's name, or raise NameInvalid with the rule."""
    if re.fullmatch(RACK, name) is None:
        raise NameInvalid(
            f"rack name {name[:64]!r} is not allowed: take 1 to 48 letters, digits, dots, dashes "
            "and underscores"
        )
    return name


def few(names: Sequence[str]) -> str:
    """Return names for a message, the first of them if there are many."""
    more = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
