"""The programs of Ceph, as far as VirtMan needs them: what is mapped is a file."""

import json
import os
from pathlib import Path

import fixtures

from tests.functional.virtman.openstack import ceph_programs
from tests.functional.virtman.openstack.ceph_programs import FSID, STATE

_PROGRAM = """#!/bin/sh
exec /usr/bin/python3 -IS {file} {name} "$@"
"""


class FakeCeph(fixtures.Fixture):
    """A cluster of Ceph, and a kernel that maps its images.

    :ivar folder: has the snapshots' data
    """

    def _setUp(self):
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("rbd", "ceph"):
            text = _PROGRAM.format(file=ceph_programs.__file__, name=name)
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.useFixture(fixtures.EnvironmentVariable(STATE, str(self.folder)))
        path = f"{programs}:{os.environ['PATH']}"
        self.useFixture(fixtures.EnvironmentVariable("PATH", path))
        self.change(snapshots={}, clones={}, mapped={}, fails={}, calls=[])

    def have(self, name, data):
        """Have an image with a snapshot; return its URL at Glance."""
        file = self.folder / name
        file.write_bytes(data)
        snapshot = f"images/{name}@snap"
        self.change(snapshots={**self.state()["snapshots"], snapshot: str(file)})
        return f"rbd://{FSID}/images/{name}/snap"

    def fail(self, words=None, status=1):
        """Let commands that begin with these words fail, or none any more."""
        self.change(fails={words: status} if words else {})

    def boot(self):
        """Let the host forget what it has mapped."""
        self.change(mapped={})

    def clones(self):
        """Return which clones are there, and of which snapshots."""
        return self.state()["clones"]

    def mapped(self):
        """Return the clone of each device."""
        return self.state()["mapped"]

    def state(self):
        return json.loads((self.folder / "state").read_text())

    def change(self, **changes):
        with ceph_programs.locked(self.folder) as state:
            state.update(changes)
