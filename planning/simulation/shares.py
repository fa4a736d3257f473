"""What each flow gets of the links that it passes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]

_SAME = 1 + 1e-9


def max_min(capacity: Numbers, links: Indices, most: Numbers) -> Numbers:
    """Return max-min fair rates: nobody could get more without another, who has less, losing some.

    A link is *filled* once all its flows would get no more anywhere else. All such links are
    filled at once, and their flows taken out, until no flow is left (Bertsekas and Gallager, Data
    Networks, 6.5.2, fill one after the other).

    :param capacity: bytes a second of each link; infinite ones are fine
    :param links: a row for each flow, of the links that it passes; rows are as long as the
        longest, so shorter ones name an infinite link several times
    :param most: bytes a second that each flow takes at most; finite
    :returns: bytes a second of each flow
    """
    rates = np.zeros(len(links))
    left = capacity.astype(float)
    waiting = np.arange(len(links))
    while len(waiting):
        passed = links[waiting]
        flows = np.bincount(passed.ravel(), minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(left, flows, out=share, where=flows > 0)
        fair = np.minimum(share[passed].min(axis=1), most[waiting])
        least = np.full(len(left), np.inf)
        np.minimum.at(least, passed, fair[:, None])
        is_filled = least * _SAME >= share
        is_done = (is_filled & np.isfinite(share))[passed].any(axis=1)
        is_done |= most[waiting] <= fair * _SAME
        done = waiting[is_done]
        rates[done] = fair[is_done]
        taken = np.repeat(fair[is_done], passed.shape[1])
        left -= np.bincount(passed[is_done].ravel(), weights=taken, minlength=len(left))
        np.maximum(left, 0.0, out=left)
        waiting = waiting[~is_done]
    return rates
