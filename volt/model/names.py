"""Which names are allowed: those of images and hosts may become part of an iSCSI name."""

import re

from volt.errors import NameInvalid

PATTERN = "[a-z0-9]([a-z0-9.-]{0,46}[a-z0-9])?"


def check_name(noun: str, name: str) -> str:
    """Return the name, or raise NameInvalid with the rule; noun is "image", for example."""
    if re.fullmatch(PATTERN, name) is None:
        raise NameInvalid(
            f"{noun} name {name[:64]!r} is not allowed: take 1 to 48 lower-case letters, digits, "
            "dots and dashes, with a letter or digit first and last"
        )
    return name
