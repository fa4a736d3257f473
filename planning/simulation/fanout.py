"""Cases from runs of ``python -m bench fanout`` on any machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planning.errors import Invalid
from planning.simulation.agreement import HOW, MBIT, WARM_S, Case, InOrder, Replay
from planning.simulation.scenario import FOREST

_PEERS = {"virtman": "prefetch", "no-prefetch": "no prefetch"}
_KILLED = "forest, one killed"


def read(file: Path) -> list[Case]:
    """Return a case for each run of VirtMan's trees in a file that ``--json`` wrote.

    :raises Invalid: if it is no such file, or has no such run
    """
    try:
        runs = json.loads(file.read_text())["runs"]
        found = [_order(run) if "shape" in run else _boot(run) for run in runs if _is_ours(run)]
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as err:
        raise Invalid(f"{file} is no file of python -m bench fanout --json: {err!r}") from err
    if not found:
        raise Invalid(f"{file} has no run that can be simulated, such as of a forest")
    return found


def _is_ours(run: Mapping[str, Any]) -> bool:
    """Tell whether a run is of VirtMan's trees, over links that are shaped, without real guests."""
    if run.get("workload") == "boot":
        return False
    name = run["shape"] if "shape" in run else _PEERS.get(run["peer"], run["peer"])
    return bool(run["link_bits_s"]) and (name in HOW or name in ("forest", _KILLED))


def _order(run: Mapping[str, Any]) -> Case:
    shape = run["shape"]
    rules = HOW.get(shape, FOREST)
    death = (run["killed_s"], run["moved_s"]) if shape == _KILLED else ()
    return InOrder(
        shape, rules, run["nodes"], run["link_bits_s"] / 8, run["bytes"], run["last_s"], *death
    ).case


def _boot(run: Mapping[str, Any]) -> Case:
    how = _PEERS.get(run["peer"], run["peer"])
    first = run["last_s"] - run["reads_s"]
    return Replay(
        run["nodes"],
        run["link_bits_s"] / 8 / MBIT,
        how,
        run["working_set_bytes"],
        max(0.0, run["warm_last_s"] - WARM_S),
        (first, run["attached_s"]),
        run["last_s"],
    ).case
