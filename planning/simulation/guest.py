"""What the VMs of a host read, and when."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from planning.simulation.scenario import Scenario


@dataclass(frozen=True)
class Read:
    """A read of a boot.

    :ivar pause_s: that the guest computes before
    :ivar wanted: units that it waits for
    :ivar ahead: those behind them, up to here, are asked for too
    """

    pause_s: float
    wanted: range
    ahead: int


def reads(scenario: Scenario, dice: Random) -> list[Read]:
    """Return the reads of a boot, in order; pauses are many short ones and few long ones."""
    boot = scenario.boot
    count = max(1, round(boot.working_set / scenario.unit))
    length = max(1, round(boot.at_once / scenario.unit))
    behind = round(boot.behind * scenario.design.rules.stripes / scenario.unit)
    starts = range(0, count, length)
    pauses = [dice.expovariate(1) for _ in starts]
    stretch = boot.think_s * (1 - boot.tail) / sum(pauses)
    return [
        Read(
            pause * stretch,
            range(start, min(start + length, count)),
            min(start + length + behind, count),
        )
        for pause, start in zip(pauses, starts, strict=True)
    ]
