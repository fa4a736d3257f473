"""How hosts read from each other and from sources: what of Volt knows how blocks travel.

Others hand a ``Portal`` and a ``Proof`` on as they are. ``columns`` says how these lie in the
database, ``probe`` whether somebody answers, and ``options`` how a command line names a source.
"""

from volt.transport.iscsi import (
    IP,
    LARGEST,
    PORT,
    PORTAL,
    RENEWED,
    SECRET,
    SECTOR,
    SOURCE,
    Portal,
    Proof,
    ip,
    new_secret,
    parse,
    parse_source,
)

__all__ = [
    "IP",
    "LARGEST",
    "PORT",
    "PORTAL",
    "RENEWED",
    "SECRET",
    "SECTOR",
    "SOURCE",
    "Portal",
    "Proof",
    "ip",
    "new_secret",
    "parse",
    "parse_source",
]
