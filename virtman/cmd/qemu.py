"""QEMU, as libvirt starts it for a VM that goes on from a suspended image.

libvirt makes the memory of each VM by itself, under a name that the state of the VM has too. So the
domain gives QEMU another object of that name, and this program leaves the first one out. It keeps
QEMU from asking for huge pages as well.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from itertools import pairwise

from virtman.errors import HostUnfit
from virtman.qemu import sandbox

_PROGRAM = "qemu-system-x86_64"
_OBJECT = "-object"


def only_last(words: Sequence[str]) -> list[str]:
    """Return a command line without objects of whose name there is another one behind them."""
    names = [_name(one) if before == _OBJECT else "" for before, one in pairwise(("", *words))]
    last = {name: at for at, name in enumerate(names) if name}
    left = {at for at, name in enumerate(names) if name and last[name] != at}
    return [one for at, one in enumerate(words) if at not in left and at + 1 not in left]


def _name(told: str) -> str:
    if told.startswith("{"):
        return str(json.loads(told).get("id", ""))
    found = re.search(r"(?:^|,)id=([^,]*)", told)
    return found[1] if found else ""


def main() -> None:
    """Be QEMU."""
    try:
        sandbox.have_no_huge_pages()
        os.execvp(_PROGRAM, [_PROGRAM, *only_last(sys.argv[1:])])  # noqa: S606
    except HostUnfit as err:
        sys.exit(f"virtman-qemu: {err}")
    except FileNotFoundError:
        sys.exit(f"virtman-qemu: there is no {_PROGRAM} on PATH: install QEMU")


if __name__ == "__main__":
    main()
