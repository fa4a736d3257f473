"""When a VM has read what, by how its host fetches pieces (VMTorrent, section 3.1).

A rate r is the bytes a second that one host gets of what it asks for. The paper states how P(t)
grows; M is piecewise linear here, so these equations are solved exactly, in bytes instead of
time.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from planning.errors import check
from planning.playback import Playback


def demand(ideal: Playback, rate: float) -> Playback:
    """Return P if a piece is fetched when the VM wants it (VMTorrent, 3.1.1, equations 2 to 4).

    dP/dt is the less of r and dM/dt. So to read db bytes takes the more of what M takes and
    db / r.
    """
    _check_rate(rate)
    now = ideal.seconds[0]
    seconds = [now]
    for thought, amount in _segments(ideal):
        now += max(thought, amount / rate)
        seconds.append(now)
    return Playback(tuple(seconds), ideal.amounts)


def in_order(ideal: Playback, rate: float) -> Playback:
    """Return P if pieces are fetched ahead in order (VMTorrent, 3.1.2, equations 5 to 7).

    What has come and was not read is the buffer B(t), a Lindley process: the VM waits only while
    that is empty. So byte b is read as long after M's time as the byte up to there that came the
    latest, b' / r, was late::

        delay(b) = max(0, b' / r - M^-1(b')) over all b' up to b
    """
    _check_rate(rate)
    now, amount, delay = 0.0, 0.0, 0.0
    points = [(now, amount)]
    for thought, read in _segments(ideal):
        ahead = max(0.0, now + delay - amount / rate)
        late = (amount + read) / rate - (now + thought)
        if late > delay:
            # the buffer runs empty where what comes is as late as what came before
            empty = amount + read * (ahead / (ahead + late - delay))
            points.append((empty / rate, empty))
            delay = late
        now += thought
        amount += read
        points.append((now + delay, amount))
    seconds = accumulate((second for second, _ in points), max)  # rounding may let them fall
    begin = ideal.seconds[0]
    return Playback(tuple(begin + one for one in seconds), tuple(one for _, one in points))


def _segments(curve: Playback) -> list[tuple[float, float]]:
    """Return the seconds and bytes from each point to the next."""
    seconds, amounts = pairwise(curve.seconds), pairwise(curve.amounts)
    return [(t1 - t0, b1 - b0) for (t0, t1), (b0, b1) in zip(seconds, amounts, strict=True)]


def _check_rate(rate: float) -> None:
    check(rate > 0, f"a rate of {rate:g} bytes a second: nothing would ever come")
