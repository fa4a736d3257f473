"""What runs of whole copies say about each other, and their picture."""

import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - starts a process, once, to find this machine's fonts
import testtools

from bench import plot, tables, whole
from bench.results import Results

AT_ONCE = {
    "run": "at once",
    "nodes": 3,
    "bytes": 100,
    "limit_s": 20.0,
    "last_s": 23.0,
    "copied_s": [21.0, 22.0, 23.0],
    "source_sent_bytes": 104,
}
RUNS = [
    AT_ONCE,
    AT_ONCE | {"run": "apart", "source_sent_bytes": 105},
    {"run": "no copy", "rate": None, "fetched_s": None, "p50_ms": 1.0, "p95_ms": 10.0},
    {"run": "capped", "rate": 500, "fetched_s": 40.0, "p50_ms": 1.0, "p95_ms": 11.0},
    {"run": "uncapped", "rate": 0, "fetched_s": 21.0, "p50_ms": 2.0, "p95_ms": 18.0},
    {
        "run": "letting go",
        "pause_own_s": 0.2,
        "pause_others_s": 0.3,
        "reads": {
            "sequential": {"disk": 100.0, "image": 98.0, "VM": 60.0},
            "random": {"disk": 10.0, "image": 9.0, "VM": 9.0},
        },
        "volume_reads": {
            "sequential": {"disk": 50.0, "image": 49.0, "VM": 49.0},
            "random": {"disk": 5.0, "image": 5.1, "VM": 5.0},
        },
    },
    {
        "run": "commit",
        "limit_s": 20.0,
        "committed_s": 3.0,
        "taken_s": 24.0,
        "checkpoint_bytes": 200,
        "changed_bytes": 3,
    },
    {"run": "boots", "first_s": [15.0, 20.0], "second_s": [23.0, 18.0]},
]


CLUSTERS = [
    {
        "run": f"{vms} VMs, {written} bytes",
        "vms": vms,
        "written_bytes": written,
        "boot_s": 3.0,
        "fetch_s": 21.0,
        "commit_s": 0.5 + vms,
        "again_s": 2.5,
        "fetch_own_s": 7.5,
    }
    for vms in (1, 2)
    for written in (0, 1024)
]


class WholeTest(testtools.TestCase):
    def test_all_that_shall_be_reached_is_a_ratio_of_runs(self):
        found = whole.ratios(RUNS)
        expected = {
            "all_at_once_last_over_limit": 1.15,
            "source_over_image": 1.04,
            "source_over_image_staggered": 1.05,
            "p95_capped_over_none": 1.1,
            "p95_uncapped_over_none": 1.8,
            "pause_own_s": 0.2,
            "pause_others_s": 0.3,
            "reads_over_disk": 0.9,
            "reads_over_volume": 0.98,
            "commit_over_link": 1.2,
            "checkpoint_over_all": 0.015,
            "second_boot_over_first": 1.15,
        }
        self.assertEqual(list(expected), list(found))
        for name, value in expected.items():
            self.assertAlmostEqual(value, found[name], msg=name)

    def test_a_read_counts_if_it_was_under_way_then(self):
        reads = [(1.0, 9.0), (5.0, 1.5), (6.5, 0.5), (8.0, 7.0)]
        self.assertEqual(1.5, whole._longest(reads[1:], 6.0, 8.0))
        self.assertEqual(9.0, whole._longest(reads, 6.0, 8.0))

    def test_they_are_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "whole.svg")
            plot.draw_copies(RUNS, file)
            text = file.read_text()
        self.assertTrue(text.startswith("<?xml"))
        for name in ("at once", "apart", "capped", "uncapped"):
            self.assertIn(f"<!-- {name} -->", text)
        self.assertNotIn("each VM wrote", text)

    def test_rates_and_clusters_have_tables_and_a_panel(self):
        slow = {"run": "at 100", "rate": 100, "fetched_s": 200.0, "p50_ms": 1.0, "p95_ms": 10.5}
        runs = [*RUNS, slow, *CLUSTERS]
        found = Results("whole", None, runs, whole.ratios(runs))
        _, rates, clusters = tables.tables(found)
        self.assertEqual(
            ["none", "100 bytes/s", "500 bytes/s", "no limit"], [line[0] for line in rates.lines]
        )
        self.assertEqual(["100 bytes/s", "1.0 ms", "10.5 ms", "200.0 s"], rates.lines[1])
        self.assertEqual(
            ["2", "1,024 bytes", "3.0 s", "21.0 s", "2.5 s", "2.5 s", "7.5 s"], clusters.lines[-1]
        )
        self.assertEqual(1, len(tables.tables(replace(found, runs=RUNS))))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "whole.svg")
            plot.draw_copies(runs, file)
            text = file.read_text()
        for name in ("at 100", "commit, 2 VMs", "MiB that each VM wrote"):
            self.assertIn(f"<!-- {name} -->", text)
