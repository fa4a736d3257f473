"""What is fetched ahead of a VM, by the runs that were recorded before.

========= =======================================================================================
demand    nothing: each piece comes once the VM waits for it
profile   what half of the runs read, in order of time (VMTorrent, 2.2.3), as agents do by default
union     all that any run read, in order of time, as vTube (5.4) has it of VMTorrent
stream    at the start what is likely then, at each miss what is likely to follow, while the VM
          goes on (vTube, 4.2.2), as agents do that are told so
clusters  at each miss the same, and the VM goes on once it will not have to wait for that (vTube,
          4.2.3)
========= =======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planning.replay.line import Line
from virtman.model import buffering
from virtman.model.buffering import Connection
from virtman.model.clusters import clusters
from virtman.model.prediction import Coming, Prediction
from virtman.model.profile import Profile, Run, merged


class Policy:
    """Has pieces sent; as it is, only what a VM waits for."""

    def begin(self, line: Line) -> None:
        """Have sent what is wanted from the start."""

    def miss(self, line: Line, piece: int, now: float) -> float:
        """Have a piece sent that a VM waits for; return when the VM goes on."""
        return line.fetch(piece, now)

    def hint(self, line: Line, piece: int, now: float) -> None:
        """Take notice that a VM reads a piece which is there."""


class InOrder(Policy):
    """Pieces in one order, whatever the VM reads."""

    def __init__(self, pieces: Sequence[int]) -> None:
        self._pieces = pieces

    def begin(self, line: Line) -> None:
        """Have all sent."""
        line.push(self._pieces, 0.0)


class Clusters(Policy):
    """What is likely to follow a miss.

    :param pauses: whether the VM stands still until the line is fast enough for the rest
    """

    def __init__(self, profile: Profile, connection: Connection, *, pauses: bool) -> None:
        self._pauses = pauses
        self._prediction = Prediction(clusters(profile.timed()))
        self._piece = profile.piece_size
        self._connection = connection

    def begin(self, line: Line) -> None:
        """Have sent what is likely at the start; vTube does nothing before the first miss."""
        if not self._pauses:
            line.push(_pieces(self._prediction.begin()), 0.0)

    def miss(self, line: Line, piece: int, now: float) -> float:
        """Have sent what follows, too."""
        wanted, demands = [piece], [(0.0, self._piece)]
        for one in self._prediction.after(piece):
            lacking = [other for other in line.lacking(one.cluster.pieces, now) if other != piece]
            wanted += lacking
            demands.append((one.after_s, len(lacking) * self._piece))
        line.push(wanted[1:], now)
        there = line.fetch(piece, now)
        if not self._pauses:
            return there
        amount = buffering.head(demands, self._connection.rate)
        return max(there, now + buffering.pause(amount, self._connection))

    def hint(self, line: Line, piece: int, now: float) -> None:
        """Have sent what follows."""
        line.push(_pieces(self._prediction.after(piece)), now)


def make(name: str, runs: Sequence[Run], piece: int, connection: Connection) -> Policy:
    """Return a policy by its name, with what it knows from runs."""
    if name == "demand":
        return Policy()
    profile = _profile(runs, piece)
    if name in ("stream", "clusters"):
        return Clusters(profile, connection, pauses=name == "clusters")
    if name == "profile":
        return InOrder(profile.wanted())
    return InOrder([one for group in profile.groups for one in group.pieces])


NAMES = ("demand", "profile", "union", "stream", "clusters")


def _pieces(coming: Iterable[Coming]) -> list[int]:
    return [piece for one in coming for piece in one.cluster.pieces]


def _profile(runs: Sequence[Run], piece: int) -> Profile:
    found: Profile | None = None
    for run in runs:
        found = merged(found, run, "0" * 64, piece)
    assert found is not None
    return found
