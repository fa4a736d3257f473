"""What a VM that reads as a recorded run did has to wait for, by a policy that knows other runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean

from planning.replay import policy
from planning.replay.line import Line
from planning.replay.traces import Trace
from virtman.model.buffering import Connection
from virtman.model.prediction import HINT_S
from virtman.model.profile import Run

NOTICED_S = 1.0
"""Seconds for which a VM has to stand still for somebody to call it a stop."""


@dataclass(frozen=True)
class Figures:
    """What became of one run, or of some on average (vTube, Figures 13 and 14).

    :ivar accessed: bytes that the VM read
    :ivar fetched: bytes that came to it, or were under way at its end
    :ivar miss_rate: share of the pieces read that were neither there nor on their way
    :ivar waited_s: seconds for which the VM stood still, for a read or for what follows it
    :ivar seconds: that the run took with them
    :ivar stops: of a second or longer, a minute
    :ivar longest_s: of these
    """

    accessed: float
    fetched: float
    miss_rate: float
    waited_s: float
    seconds: float
    stops: float
    longest_s: float

    @property
    def fetch_ratio(self) -> float:
        """Bytes fetched for each byte read."""
        return self.fetched / self.accessed

    @property
    def buffering_ratio(self) -> float:
        """Share of the time for which the VM stood still."""
        return self.waited_s / self.seconds


def average(trace: Trace, name: str, connection: Connection) -> Figures:
    """Replay each run by a policy that knows all others; return the figures' means."""
    found = [
        replay(run, policy.make(name, others, trace.piece, connection), trace.piece, connection)
        for run, others in _left_out(trace)
    ]
    return Figures(*(mean(getattr(one, field) for one in found) for field in _FIELDS))


def replay(run: Run, wanted: policy.Policy, piece: int, connection: Connection) -> Figures:
    """Replay a run: its reads come one after another, with the pauses between them."""
    line = Line(piece, connection)
    wanted.begin(line)
    misses, waited, told = 0, 0.0, 0.0
    stops: dict[float, float] = {}
    for number, second in sorted(run.items(), key=lambda one: (one[1], one[0])):
        now = second + waited
        there = line.when(number, now)
        if there is None:
            misses += 1
            told = now
            there = wanted.miss(line, number, now)
        elif now - told >= HINT_S:
            told = now
            wanted.hint(line, number, now)
        stop = max(0.0, there - now)
        stops[second] = stops.get(second, 0.0) + stop
        waited += stop
    seconds = max(run.values()) + waited
    noticed = [stop for stop in stops.values() if stop >= NOTICED_S]
    return Figures(
        accessed=len(run) * piece,
        fetched=line.sent(seconds) * piece,
        miss_rate=misses / len(run),
        waited_s=waited,
        seconds=seconds,
        stops=60 * len(noticed) / seconds,
        longest_s=max(stops.values()),
    )


_FIELDS = tuple(Figures.__dataclass_fields__)


def _left_out(trace: Trace) -> Iterable[tuple[Run, list[Run]]]:
    for number, run in enumerate(trace.runs):
        yield run, [*trace.runs[:number], *trace.runs[number + 1 :]]
