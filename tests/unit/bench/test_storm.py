"""What a trace of QEMU says, and what runs say about each other."""

import testtools

from bench import storm

TRACE = """\
2026-11-24T22:00:01.000100Z qemu: warning: something else
42@1700000000.500000:blk_co_preadv blk 0x1 bs 0x2 offset 0 bytes 512 flags 0x0
42@1700000000.750000:blk_co_preadv blk 0x1 bs 0x2 offset 4096 bytes 8192 flags 0x0
42@1700000002.000000:blk_co_preadv blk 0x1 bs 0x2 offset 8192 bytes 4096 flags 0x0
"""


def run(peer, **figures):
    """Return a run, of which only these figures matter."""
    return {
        "peer": peer,
        "workload": "replay",
        "limit_s": 20.0,
        "last_s": 25.0,
        "warm_last_s": 20.0,
        "working_set_bytes": 100,
        "source_sent_bytes": 104,
        "busiest_node_sent_bytes": 120,
        "fetch_ratio": 1.05,
        "stall_max_ms": 400.0,
        **figures,
    }


class StormTest(testtools.TestCase):
    def test_a_trace_tells_reads_and_the_pauses_before_them(self):
        reads = list(storm.parse(TRACE.splitlines()))
        self.assertEqual([(0, 512), (4096, 8192), (8192, 4096)], [one[1:] for one in reads])
        for expected, (pause, _, _) in zip((0, 0.25, 1.25), reads, strict=True):
            self.assertAlmostEqual(expected, pause, places=5)

    def test_a_block_that_is_read_twice_counts_once(self):
        reads = list(storm.parse(TRACE.splitlines()))
        self.assertEqual(3 * 4096, storm.working_set(reads))

    def test_runs_are_compared_with_ours(self):
        found = storm.ratios([run("virtman"), run("no-prefetch", last_s=50.0, stall_max_ms=800.0)])
        self.assertEqual({"no-prefetch": 2.0}, found.pop("peers"))
        self.assertEqual(
            {
                "replay_last_over_limit": 1.25,
                "cold_over_warm_replay": 1.25,
                "source_over_set": 1.04,
                "busiest_over_set": 1.2,
                "fetched_over_used": 1.05,
                "stall_max_over_none": 0.5,
            },
            found,
        )

    def test_without_ours_there_is_nothing_to_compare(self):
        self.assertEqual({}, storm.ratios([run("tree")]))
