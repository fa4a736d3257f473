"""What runs of images that share blocks say about each other, and their picture."""

import tempfile
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - starts a process, once, to find this machine's fonts
import testtools

from bench import plot, ring, sharing

RUNS = [
    {"run": "updated", "bytes": 100, "delta_bytes": 10, "received_bytes": 11},
    {"run": "rebuilt", "bytes": 100, "delta_bytes": 20, "received_bytes": 23},
    {"run": "boot", "on_old_s": 22.0, "on_itself_s": 20.0},
    {"run": "family", "images": 10, "bytes": 1000, "unique_bytes": 200, "cached_bytes": 230},
    {"run": "rows", "table_load_s": 0.7, "list_s": 0.05, "list_without_s": 0.05},
    {"run": "re-reads", "design": "trees", "read_bytes": 10, "source_bytes": 4, "sent_bytes": 14},
    {"run": "re-reads", "design": "ring", "read_bytes": 10, "source_bytes": 1, "sent_bytes": 8},
]


class SharingTest(testtools.TestCase):
    def test_all_that_shall_be_reached_is_a_ratio_of_runs(self):
        found = sharing.ratios(RUNS)
        expected = {
            "inplace_bytes_over_delta": 1.1,
            "rebuilt_bytes_over_delta": 1.15,
            "boot_v2_on_v1_over_v2": 1.1,
            "cache_over_unique": 1.15,
            "table_load_s": 0.7,
            "list_over_without": 1.0,
        }
        self.assertEqual(list(expected), list(found))
        for name, value in expected.items():
            self.assertAlmostEqual(value, found[name], msg=name)

    def test_a_ring_is_compared_with_trees(self):
        self.assertEqual({"ring_source_over_trees": 0.25}, ring.ratios(RUNS))

    def test_what_is_not_measured_yet_is_no_ratio(self):
        self.assertEqual({}, ring.ratios(RUNS[:-1]))
        self.assertEqual(["inplace_bytes_over_delta"], list(sharing.ratios(RUNS[:1])))

    def test_new_is_what_is_nowhere_in_the_earlier_version(self):
        old = [b"a", b"b", None, b"c"]
        self.assertEqual(2 * 4096, sharing.delta(old, [b"b", b"x", None, b"y"]))
        self.assertEqual(0, sharing.delta(old, [None, b"c", b"a", None]))

    def test_zeros_are_not_read(self):
        disk = [None, *[b"a"] * 300, None, b"b"]
        mib = 1 << 20
        expected = [(0.0, 4096, mib), (0.0, 4096 + mib, 44 * 4096), (0.0, 302 * 4096, 4096)]
        self.assertEqual(expected, list(sharing.reads(disk)))

    def test_they_are_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "sharing.svg")
            plot.draw_sharing(RUNS, file)
            text = file.read_text()
        for name in ("updated", "rebuilt", "unique", "10 images of one base", "ring", "by all"):
            self.assertIn(f"<!-- {name} -->", text)
