"""What a bench, the simulator or the model leaves behind: figures, and where they are from."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planning import origin
from planning.origin import Machine, Origin

PROGRAM = "python -m bench"

_ABOUT = ("bench", "command", "commit", "machine", "ratios")
_KEYS = {"agreement": "agree", "answers": "size", "times": "times", "curves": "curves"}
_OF_RUNS = {"source_over_set": "predict", "buffering_ratio": "prefetch"}


class BadResults(Exception):
    """What a file has are no results of a bench; the message says why."""


@dataclass(frozen=True)
class Results:
    """The runs of one bench, or what the simulator or the model found.

    :ivar bench: its name, or that of the command
    :ivar origin: where figures are from; None if the file does not tell
    :ivar runs: of a command without runs a single one, with all that it found
    :ivar ratios: what the runs say about each other
    """

    bench: str
    origin: Origin | None
    runs: Sequence[Mapping[str, Any]]
    ratios: Mapping[str, Any] | None = None

    def save(self, file: Path) -> None:
        """Write a file."""
        about = {} if self.origin is None else asdict(self.origin)
        said = {"bench": self.bench, **about, "runs": self.runs, "ratios": self.ratios}
        kept = {name: value for name, value in said.items() if value is not None}
        file.write_text(json.dumps(kept, indent=2) + "\n")


def of(
    bench: str, runs: Sequence[Mapping[str, Any]], ratios: Mapping[str, Any] | None = None
) -> Results:
    """Return what this process has measured by now."""
    return Results(bench, origin.here(PROGRAM), runs, ratios)


def load(file: Path) -> Results:
    """Read a file; raises BadResults."""
    try:
        said = json.loads(file.read_text())
        found = {key: value for key, value in said.items() if key not in _ABOUT}
        runs = said.get("runs", [found])
        return Results(_bench(said), _origin(said), runs, said.get("ratios"))
    except (OSError, ValueError) as err:
        raise BadResults(f"no JSON that can be read: {err}") from err
    except KeyError as err:
        raise BadResults(f"no file of a bench: {err} is missing") from err
    except (TypeError, AttributeError, IndexError) as err:
        raise BadResults(f"no file of a bench: {err}") from err


def by_rate(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs of a VM that reads beside copies: without one first, with no limit last."""
    beside = [run for run in runs if "p95_ms" in run]

    def order(run: Mapping[str, Any]) -> float:
        return -1.0 if run["rate"] is None else run["rate"] or math.inf

    return sorted(beside, key=order)


def _bench(said: Mapping[str, Any]) -> str:
    """Return whose figures these are; files of planning may not tell, but by their keys."""
    if "bench" not in said:
        of_runs = said["runs"][0] if said.get("runs") else {}
        for keys, names in ((said, _KEYS), (of_runs, _OF_RUNS)):
            for key, name in names.items():
                if key in keys:
                    return name
    bench: str = said["bench"]
    return bench


def _origin(said: Mapping[str, Any]) -> Origin | None:
    """Return where figures are from; only files of planning may not tell."""
    if "bench" not in said:
        return None
    return Origin(said["command"], said.get("commit"), Machine(**said["machine"]))
