"""Servers that leave a node live, on record.

What nova needs to end a live migration, whichever way, is in the memory of nova-compute only.
Should that die meanwhile, libvirt and the agents go on, and who is started anew has to end it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virtman import atomic_file


class Departures:
    """The servers that leave one node.

    :param folder: survives a reboot; has a file for each server
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, server: str, needed: Mapping[str, Any]) -> None:
        """Write down that a server leaves, and what it needs for the rest of the way, as JSON."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_file.write(self.folder / server, json.dumps(needed).encode())

    def drop(self, server: str) -> None:
        """Forget a server that has left, or stays. Repeatable."""
        if self.folder.exists():
            atomic_file.remove(self.folder / server)

    def all(self) -> dict[str, dict[str, Any]]:
        """Return what was written down, by server."""
        if not self.folder.exists():
            return {}
        files = [one for one in self.folder.iterdir() if not atomic_file.is_partial(one)]
        return {one.name: json.loads(one.read_bytes()) for one in files}
