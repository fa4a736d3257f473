"""What runs of resumed VMs say about each other, and their picture and tables."""

import tempfile
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - starts a process, once, to find this machine's fonts
import testtools

from bench import plot, resume, tables
from bench.results import Results

FIGURES = {"miss_rate": 0.02, "fetch_ratio": 1.1, "buffering_ratio": 0.4, "waited_s": 80.0}
POLICIES = [
    {"run": "policy", "policy": policy, "workload": "web", "link_bits_s": bits, **FIGURES}
    for policy in resume.POLICIES
    for bits in (7.2e6, 25e6)
]
RUNS = [
    *POLICIES,
    {"run": "suspend", "suspended_s": 5.0, "memory_bytes": 1000, "layer_bytes": 600},
    {"run": "touched", "touched_bytes": [100, 110, 90]},
    {
        "run": "alone",
        "running_s": 3.0,
        "answered_s": 6.0,
        "received_bytes": 130,
        "second_running_s": 0.9,
        "second_answered_s": 2.0,
        "second_received_bytes": 1.3,
    },
    {
        "run": "at once",
        "nodes": 2,
        "clones": 4,
        "ran_s": [2.0, 2.0, 3.0, 3.0],
        "answered_s": [5.0, 6.0, 7.0, 8.0],
        "union_bytes": 120,
        "source_sent_bytes": 132,
    },
    {"run": "boots", "ready_s": [60.0, 70.0, 70.0, 80.0]},
]


class ResumeTest(testtools.TestCase):
    def test_all_that_shall_be_reached_is_a_ratio_of_runs(self):
        found = resume.ratios(RUNS)
        policies = found.pop("policies")
        self.assertEqual({name: {"web": FIGURES} for name in resume.POLICIES}, policies)
        expected = {
            "last_answer_over_boot": 0.1,
            "received_over_touched": 1.3,
            "second_clone_over_first": 0.01,
            "running_s": 0.9,
            "source_over_union": 1.1,
        }
        self.assertEqual(list(expected), list(found))
        for name, value in expected.items():
            self.assertAlmostEqual(value, found[name], msg=name)

    def test_what_is_not_measured_yet_is_no_ratio(self):
        self.assertEqual(["policies"], list(resume.ratios(POLICIES)))
        self.assertEqual({}, resume.ratios(RUNS[4:6]))

    def test_what_nothing_helped_stands_beside_it(self):
        first = {**RUNS[-2], "run": "at once unhelped", "answered_s": [16.0]}
        boots = {**RUNS[-1], "run": "boots unhelped", "ready_s": [32.0]}
        found = resume.ratios([*RUNS, first, boots])
        self.assertEqual({**resume.ratios(RUNS), "unhelped": found["unhelped"]}, found)
        self.assertEqual(["last_answer_over_boot", "source_over_union"], list(found["unhelped"]))
        self.assertAlmostEqual(0.5, found["unhelped"]["last_answer_over_boot"])

    def test_they_are_shown_and_drawn(self):
        found = Results("resume", None, RUNS, resume.ratios(RUNS))
        shown = tables.tables(found)
        row = ["first clone of a node: received over touched", "1.30", "-"]
        self.assertIn(row, shown[0].lines)
        self.assertEqual(len(POLICIES), len(shown[1].lines))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "resume.svg")
            plot.draw_resumes(RUNS, file)
            text = file.read_text()
        for name in ("4 VMs on 2 nodes", "resumed: answers", "source, to all", "clusters"):
            self.assertIn(f"<!-- {name} -->", text)
