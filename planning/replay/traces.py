"""What runs of a program read of an image, and when: to try policies of prefetch on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from planning.errors import Invalid, check
from virtman.model.profile import Run

_RECORDED = Path(__file__).with_name("recorded")


@dataclass(frozen=True)
class Trace:
    """Runs of one workload, at least two.

    :ivar piece: bytes
    :ivar runs: of each, the pieces that were read, and seconds from its begin to their first read
    """

    workload: str
    piece: int
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        check(self.piece > 0, f"pieces of {self.piece} bytes: they must have some")
        check(len(self.runs) > 1, f"{self.workload}: one run is left out, so record two at least")
        check(all(self.runs), f"{self.workload}: a run read nothing, record it again")


def recorded() -> list[Trace]:
    """Return those that come with VirtMan: contributor/simulation.rst says what they are of."""
    return [read(file) for file in sorted(_RECORDED.glob("*.json"))]


def read(file: Path) -> Trace:
    """Return what a file says that ``write`` wrote.

    :raises Invalid: if it is no such file
    """
    try:
        found = json.loads(file.read_text())
        runs: tuple[dict[int, float], ...] = tuple({} for _ in found["runs"])
        for run, looks in zip(runs, found["runs"], strict=True):
            for tenths, spans in looks:
                for first, count in spans:
                    for number in range(first, first + count):
                        run.setdefault(number, tenths / 10)
        return Trace(found["workload"], int(found["piece"]), runs)
    except (ValueError, KeyError, TypeError) as err:
        raise Invalid(f"{file} is no file of python -m bench traces: {err!r}") from err


def write(file: Path, trace: Trace) -> None:
    """Write runs: a line for each, with what each look found, in tenths of a second and spans."""
    head = json.dumps({"workload": trace.workload, "piece": trace.piece})[:-1]
    lines = ",\n".join(json.dumps(_looks(run), separators=(",", ":")) for run in trace.runs)
    file.write_text(f'{head}, "runs": [\n{lines}\n]}}\n')


def _looks(run: Run) -> list[tuple[int, list[tuple[int, int]]]]:
    found: dict[int, list[int]] = {}
    for number, seconds in sorted(run.items()):
        found.setdefault(round(seconds * 10), []).append(number)
    return [(tenths, _spans(found[tenths])) for tenths in sorted(found)]


def _spans(numbers: list[int]) -> list[tuple[int, int]]:
    groups = groupby(enumerate(numbers), key=lambda one: one[1] - one[0])
    spans = [[number for _, number in members] for _, members in groups]
    return [(span[0], len(span)) for span in spans]
