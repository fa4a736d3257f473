"""How anybody can make figures again: by which command, of which commit, on what kind of machine.

It names neither the machine nor its folders.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parent.parent
_WRITTEN = ("--json", "--csv", "--plot")  # options that say where files go: they change no figure
_READ = ("--fanout", "--measured", "--profile", "--traces")


@dataclass(frozen=True)
class Machine:
    """What figures depend on of a machine; ``processor`` is its model."""

    processor: str
    processors: int
    memory_bytes: int
    kernel: str


@dataclass(frozen=True)
class Origin:
    """Where figures are from.

    :ivar commit: of this tree, with a + if something in it was changed; None if git does not know
    """

    command: str
    commit: str | None
    machine: Machine


def here(program: str) -> Origin:
    """Return the origin of what this process, of that program, finds."""
    return Origin(command(program, sys.argv[1:]), _commit(), _machine())


def command(program: str, words: Sequence[str]) -> str:
    """Return a command, less the names of files that it writes and the folders of those it reads.

    :param words: its arguments
    """
    kept: list[str] = []
    option = ""
    for word in words:
        name, is_one, value = word.partition("=")
        if option in _READ:
            kept.append(Path(word).name)
        elif name in _READ and is_one:
            kept.append(f"{name}={Path(value).name}")
        elif option not in _WRITTEN and name not in _WRITTEN:
            kept.append(word)
        option = word
    return f"{program} {shlex.join(kept)}".rstrip()


def _commit() -> str | None:
    words = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    if not (TOP / ".git").exists():  # installed, maybe below another tree
        return None
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
