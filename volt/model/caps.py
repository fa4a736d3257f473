"""How much each host may fetch ahead of its VMs, where caps apply to it.

A host that fetches ahead in an image is a *taker* of the caps that apply: the image's, the host's
own, and that of its rack. Its share is an equal part of each cap, but no more than the others
leave of it::

    rate 12        a joins   b joins   a reports   b reports
    granted to a   12        12        6           6
    granted to b             0         0           6

So what is granted of a cap only exceeds its rate after that was lowered, or after a taker moved to
another rack, and then falls with each report. Who got too little has an equal part once all
others have reported, and then it has.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class CapKind(StrEnum):
    """What a cap is of."""

    IMAGE = "image"
    RACK = "rack"
    HOST = "host"


@dataclass(frozen=True)
class Cap:
    """How many bytes a second may be fetched ahead: in an image, by a rack's hosts, or by a host.

    ``takers`` counts those who fetch ahead now, a host once for each image; ``granted`` is the sum
    of their shares.
    """

    kind: CapKind
    name: str
    rate: int
    takers: int
    granted: int


Key = tuple[CapKind, str]
"""What a cap is of: the kind, and the name of the image, rack or host."""


class Dealing:
    """Caps from which shares are dealt out, one after another."""

    def __init__(self, caps: Iterable[Cap]) -> None:
        """All who get a share count among the caps' takers already."""
        self._caps: dict[Key, Cap] = {(cap.kind, cap.name): cap for cap in caps}

    def share(self, keys: Collection[Key], had: int) -> int:
        """Return the share of a taker of these caps, which ``had`` another one before."""
        caps = {key: self._caps[key] for key in keys}
        parts = [min(cap.rate // cap.takers, cap.rate - cap.granted + had) for cap in caps.values()]
        share = max(0, min(parts))
        for key, cap in caps.items():
            self._caps[key] = replace(cap, granted=cap.granted - had + share)
        return share
