"""What a bench leaves behind: its figures, and how anybody can measure them again.

A file says with which command, of which commit and on what kind of machine they were measured. It
names neither the machine nor its folders.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).parent.parent
_PLACES = ("--json", "--plot")  # options that say where files go: they change no figure


class BadResults(Exception):
    """What a file has are no results of a bench; the message says why."""


@dataclass(frozen=True)
class Machine:
    """What figures depend on of a machine; ``processor`` is its model."""

    processor: str
    processors: int
    memory_bytes: int
    kernel: str


@dataclass(frozen=True)
class Results:
    """The runs of one bench.

    :ivar commit: of this tree, with a + if something in it was changed; None if git does not know
    :ivar ratios: what the runs say about each other
    """

    bench: str
    command: str
    commit: str | None
    machine: Machine
    runs: Sequence[Mapping[str, Any]]
    ratios: Mapping[str, Any] | None = None

    def save(self, file: Path) -> None:
        """Write a file."""
        said = {name: value for name, value in asdict(self).items() if value is not None}
        file.write_text(json.dumps(said, indent=2) + "\n")


def of(
    bench: str, runs: Sequence[Mapping[str, Any]], ratios: Mapping[str, Any] | None = None
) -> Results:
    """Return what this process has measured by now."""
    return Results(bench, command(sys.argv[1:]), _commit(), _machine(), runs, ratios)


def load(file: Path) -> Results:
    """Read a file; raises BadResults."""
    try:
        said = json.loads(file.read_text())
        return Results(
            said["bench"],
            said["command"],
            said.get("commit"),
            Machine(**said["machine"]),
            said["runs"],
            said.get("ratios"),
        )
    except (OSError, ValueError) as err:
        raise BadResults(f"no JSON that can be read: {err}") from err
    except KeyError as err:
        raise BadResults(f"no file of a bench: {err} is missing") from err
    except TypeError as err:
        raise BadResults(f"no file of a bench: {err}") from err


def by_rate(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the runs of a VM that reads beside copies: without one first, with no limit last."""
    beside = [run for run in runs if "p95_ms" in run]

    def order(run: Mapping[str, Any]) -> float:
        return -1.0 if run["rate"] is None else run["rate"] or math.inf

    return sorted(beside, key=order)


def command(words: Sequence[str]) -> str:
    """Return a bench's command, less the names of files that it writes."""
    kept: list[str] = []
    is_place = False
    for word in words:
        if not is_place and word.partition("=")[0] not in _PLACES:
            kept.append(word)
        is_place = word in _PLACES
    return f"python -m bench {shlex.join(kept)}".rstrip()


def _commit() -> str | None:
    words = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _machine() -> Machine:
    models = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    processors = len(os.sched_getaffinity(0))
    model = models[0] if models else os.uname().machine
    return Machine(model, processors, memory, os.uname().release)
