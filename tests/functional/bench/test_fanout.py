"""What the command ``python -m bench fanout`` writes; the bed is left out, all else is real."""

import json
import tempfile
from pathlib import Path

import fixtures
import testtools
from click.testing import CliRunner

from bench import fanout, storm
from bench.__main__ import main

RUN = {
    "peer", "workload", "nodes", "link_bits_s", "working_set_bytes", "limit_s", "first_s",
    "median_s", "last_s", "warm_last_s", "source_sent_bytes", "busiest_node_sent_bytes",
    "fetch_ratio", "stalls", "stall_p50_ms", "stall_p99_ms", "stall_max_ms",
}  # fmt: skip
MORE_OF_RUN = {
    "profile_covers", "floor_s", "attached_s", "reads_s", "ready_s", "sent_bytes", "received",
    "processors_busy", "longest_waits",
}  # fmt: skip
RATIOS = {
    "replay_last_over_limit", "cold_over_warm_replay", "cold_over_warm_boot", "source_over_set",
    "busiest_over_set", "fetched_over_used", "foreign_profile_over_none", "stall_max_over_none",
    "peers",
}  # fmt: skip
MORE_RATIOS = {"boot_last_over_limit", "replay_reads_over_limit", "boot_reads_over_limit"}


def booted(nodes, link_rate, peers, workload, progress):
    """Return the runs of boots that took these times, and read nothing that came ahead."""
    link = storm.bytes_per_second(link_rate) if link_rate else 0
    setting = storm.Setting(nodes, link, workload, 80_000_000, 20.0, 25.0, 0.97)
    waits = [(3.0, 0.02), (1.0, 0.4)] if workload == "replay" else []
    cold = storm.Boots([2.0, 3.0], [31.0, 40.0], waits, 83_000_000, [0, 9], [(1.0, 5.0)], 1.5)
    warm = storm.Boots([1.0, 2.0], [21.0, 20.0], [], 0, [0, 0], [(1.0, 0.0)], 1.1)
    return [storm.entry(peer, setting, cold, warm, None) for peer in peers]


def read(nodes, link_rate, shapes, size, kill, progress):
    """Return a run of an image that is read in order, without a limit."""
    assert link_rate is None
    found = {"nodes": nodes, "link_bits_s": 0, "bytes": size, "limit_s": None, "last_s": 3.0}
    found |= {"source_sent_bytes": size, "busiest_node_sent_bytes": size}
    return [{"shape": shape, **found} for shape in shapes]


class FanoutTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(storm, "measure", booted))
        self.useFixture(fixtures.MockPatchObject(fanout, "measure", read))

    def run_with(self, *words):
        """Return what the command writes, which has to be JSON, with no words for numbers."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "found.json")
            done = CliRunner().invoke(main, ["fanout", *words, "--json", str(file)])
            self.assertEqual(0, done.exit_code, done.output)
            return json.loads(file.read_text(), parse_constant=self.fail)

    def test_boots_have_these_figures_in_one_file(self):
        peers = "virtman,no-prefetch,foreign,star"
        words = ("--nodes", "2,7", "--peers", peers, "--workload", "replay,boot")
        found = self.run_with(*words)
        self.assertEqual(16, len(found["runs"]))
        for run in found["runs"]:
            self.assertEqual(RUN | MORE_OF_RUN, set(run))
        self.assertEqual({"2x25M", "7x25M"}, set(found["ratios"]))
        for ratios in found["ratios"].values():
            self.assertEqual(RATIOS | MORE_RATIOS, set(ratios))
            self.assertEqual({"no-prefetch", "foreign", "star"}, set(ratios["peers"]))

    def test_what_is_read_in_order_needs_no_limit(self):
        found = self.run_with("--link-rate", "none", "--nodes", "3", "--shapes", "star")
        self.assertEqual([None], [run["limit_s"] for run in found["runs"]])

    def test_a_workload_that_there_is_not_is_refused(self):
        for word in ("sleep", "order,boot"):
            done = CliRunner().invoke(main, ["fanout", "--workload", word])
            self.assertEqual(2, done.exit_code)
            self.assertIn("no such workload", done.output)
