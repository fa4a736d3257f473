"""Servers that leave a node live, on record."""

import tempfile
from pathlib import Path

import testtools

from virtman import atomic_file
from virtman.openstack.departures import Departures


class DeparturesTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "virtman" / "departures"
        self.departures = Departures(self.folder)

    def test_there_are_none_at_first(self):
        self.departures.drop("s1")
        self.assertEqual({}, self.departures.all())

    def test_they_are_known_to_who_comes_next(self):
        self.departures.put("s1", {"host": "node2"})
        self.departures.put("s2", {"host": "node2"})
        self.departures.put("s2", {"host": "node3"})
        self.departures.drop("s1")
        self.departures.drop("s1")
        self.assertEqual({"s2": {"host": "node3"}}, Departures(self.folder).all())

    def test_nobody_else_reads_them(self):
        self.departures.put("s1", {"host": "node2"})
        modes = [one.stat().st_mode & 0o077 for one in (self.folder, self.folder / "s1")]
        self.assertEqual([0, 0], modes)

    def test_one_that_was_only_being_written_is_none(self):
        self.departures.put("s1", {"host": "node2"})
        atomic_file.part_of(self.folder / "s2").write_text("{")
        self.assertEqual({"s1"}, set(self.departures.all()))
