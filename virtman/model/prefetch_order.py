"""Which piece of an image is fetched ahead next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from random import Random

AHEAD = 300
"""Pieces among which one is picked at random, by default."""


class Policy(StrEnum):
    """How the next piece is picked (VMTorrent, 2.2.4).

    In order suits hosts with one parent a stripe: each piece comes when it is wanted. With a
    random one of the first k, hosts that boot at once hold different pieces; those wanted soon
    come later.
    """

    IN_ORDER = "in-order"
    WINDOW_RANDOM = "window-random"


def order(policy: Policy, pieces: Iterable[int], dice: Random, k: int = AHEAD) -> Iterator[int]:
    """Yield all pieces, each once, as they are to be fetched.

    :param pieces: as they will be wanted; read no further than k ahead, so that a caller can
        leave out those that have come meanwhile
    :param k: of how many one is picked; 1 is the same as in order
    """
    coming = iter(pieces)
    if policy == Policy.IN_ORDER:
        yield from coming
        return
    window = list(islice(coming, k))
    while window:
        picked = dice.randrange(len(window))
        yield window.pop(picked)
        window += islice(coming, 1)
