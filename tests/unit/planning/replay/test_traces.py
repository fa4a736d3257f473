"""Recorded runs, in files."""

import tempfile
from pathlib import Path

import testtools
from hypothesis import given
from hypothesis import strategies as st

from planning.errors import Invalid
from planning.replay import traces
from planning.replay.traces import Trace

_tenths = st.dictionaries(st.integers(0, 99), st.integers(0, 50).map(lambda n: n / 10), min_size=1)


class TracesTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name, "runs.json")

    @given(st.lists(_tenths, min_size=2, max_size=4))
    def test_what_is_written_is_read(self, runs):
        trace = Trace("web", 65536, tuple(runs))
        traces.write(self.file, trace)
        self.assertEqual(trace, traces.read(self.file))

    def test_a_run_is_a_line_of_spans(self):
        traces.write(self.file, Trace("web", 4096, ({3: 0.26, 4: 0.3, 9: 0.3, 1: 2.0}, {5: 0.0})))
        self.assertEqual(
            '{"workload": "web", "piece": 4096, "runs": [\n'
            "[[3,[[3,2],[9,1]]],[20,[[1,1]]]],\n[[0,[[5,1]]]]\n]}\n",
            self.file.read_text(),
        )

    def test_what_cannot_be_is_refused(self):
        self.assertRaises(Invalid, Trace, "web", 65536, ({1: 0.0},))
        self.assertRaises(Invalid, Trace, "web", 65536, ({1: 0.0}, {}))
        self.assertRaises(Invalid, Trace, "web", 0, ({1: 0.0}, {1: 0.0}))
        for text in ("{", "[]", "{}", '{"workload": "web", "piece": 4096, "runs": [3]}'):
            self.file.write_text(text)
            self.assertRaises(Invalid, traces.read, self.file)

    def test_those_that_come_with_the_project(self):
        found = {trace.workload: trace for trace in traces.recorded()}
        self.assertEqual({"build", "database", "make", "web"}, set(found))
        self.assertTrue(all(len(trace.runs) >= 8 for trace in found.values()))
        kinds = {name: len(set(map(frozenset, trace.runs))) for name, trace in found.items()}
        self.assertEqual(["make"], [name for name, count in kinds.items() if count == 1])
