"""What a trace of QEMU says, and what runs say about each other."""

import testtools

from bench import storm, trace

TRACE = """\
2026-11-24T22:00:01.000100Z qemu: warning: something else
42@1700000000.500000:blk_co_preadv blk 0x1 bs 0x2 offset 0 bytes 512 flags 0x0
42@1700000000.750000:blk_co_preadv blk 0x1 bs 0x2 offset 4096 bytes 8192 flags 0x0
42@1700000002.000000:blk_co_preadv blk 0x1 bs 0x2 offset 8192 bytes 4096 flags 0x0
"""
WRITTEN = """\
42@1700000000.000000:blk_co_pwritev blk 0x1 bs 0x2 offset 8192 bytes 4096 flags 0x0
42@1700000001.000000:blk_co_preadv blk 0x1 bs 0x2 offset 8704 bytes 512 flags 0x0
42@1700000003.000000:blk_co_preadv blk 0x1 bs 0x2 offset 4608 bytes 12288 flags 0x0
"""


def run(peer, **figures):
    """Return a run, of which only these figures matter."""
    return {
        "peer": peer,
        "workload": "replay",
        "limit_s": 20.0,
        "last_s": 25.0,
        "reads_s": 22.0,
        "warm_last_s": 20.0,
        "working_set_bytes": 100,
        "source_sent_bytes": 104,
        "busiest_node_sent_bytes": 120,
        "fetch_ratio": 1.05,
        "stalls": 9,
        "stall_max_ms": 400.0,
        **figures,
    }


class StormTest(testtools.TestCase):
    def test_a_trace_tells_reads_and_the_pauses_before_them(self):
        reads = list(trace.parse(TRACE.splitlines()))
        self.assertEqual([(0, 512), (4096, 8192), (8192, 4096)], [one[1:] for one in reads])
        for expected, (pause, _, _) in zip((0, 0.25, 1.25), reads, strict=True):
            self.assertAlmostEqual(expected, pause, places=5)

    def test_what_the_guest_wrote_itself_is_not_read_of_the_image(self):
        reads = list(trace.parse(WRITTEN.splitlines()))
        self.assertEqual([(3.0, 4608, 3584), (0.0, 12288, 4608)], reads)

    def test_a_block_that_is_read_twice_counts_once(self):
        reads = list(trace.parse(TRACE.splitlines()))
        self.assertEqual(3 * 4096, trace.working_set(reads))

    def test_a_boot_cannot_be_faster_than_its_link_brings_what_it_reads(self):
        block = trace.BLOCK
        reads = [(0.0, 0, 2 * block), (1.0, 0, block), (0.5, 2 * block, block), (3.0, 0, block)]
        self.assertEqual(2 + 1 + 0.5 + 3, trace.floor(reads, block))
        self.assertAlmostEqual(30 + 3, trace.floor(reads, block / 10))
        self.assertEqual(4.5, trace.floor(reads, 0))

    def test_another_workload_reads_as_much_but_nothing_of_the_same(self):
        piece = trace.PIECE
        reads = [(0.1, 0, 512), (0.1, 2 * piece + 4096, piece)]
        found = trace.untouched([*reads, (0, 5 * piece, piece)], 8 * piece)
        self.assertEqual([(trace.BEGIN, piece, piece), (0, 4 * piece, piece)], found)

    def test_runs_are_compared_with_ours(self):
        plain = run("no-prefetch", last_s=50.0, stall_max_ms=800.0)
        found = storm.ratios([run("virtman"), plain, run("foreign", last_s=51.0)])
        self.assertEqual({"no-prefetch": 2.0, "foreign": 2.04}, found.pop("peers"))
        self.assertEqual(
            {
                "replay_last_over_limit": 1.25,
                "replay_reads_over_limit": 1.1,
                "cold_over_warm_replay": 1.25,
                "source_over_set": 1.04,
                "busiest_over_set": 1.2,
                "fetched_over_used": 1.05,
                "stall_max_over_none": 0.5,
                "foreign_profile_over_none": 1.02,
            },
            found,
        )

    def test_a_longest_read_that_was_not_seen_is_what_counts_as_one(self):
        none, some = {"stalls": 0, "stall_max_ms": None}, {"stall_max_ms": 25.0}
        for ours, plain, expected in ((some, none, 2.5), (none, some, 0.0), (none, none, 0.0)):
            found = storm.ratios([run("virtman", **ours), run("no-prefetch", **plain)])
            self.assertEqual(expected, found["stall_max_over_none"])

    def test_of_guests_nobody_knows_how_long_reads_took(self):
        figures = {"workload": "boot", "stalls": None, "stall_max_ms": None}
        found = storm.ratios([run("virtman", **figures), run("no-prefetch", **figures)])
        self.assertNotIn("stall_max_over_none", found)

    def test_what_two_workloads_have_in_common_is_from_the_first(self):
        boot = run("virtman", workload="boot", last_s=30.0, source_sent_bytes=200, stalls=None)
        found = storm.ratios([run("virtman"), run("no-prefetch"), boot])
        self.assertEqual(
            (1.25, 1.5), (found["cold_over_warm_replay"], found["cold_over_warm_boot"])
        )
        self.assertEqual((1.04, 1.0), (found["source_over_set"], found["stall_max_over_none"]))
        self.assertEqual({"no-prefetch": 1.0}, found["peers"])

    def test_a_combination_is_called_the_same_however_its_rate_is_written(self):
        for rate in ("25M", "25m", "25mbit", "25Mbit"):
            self.assertEqual("7x25M", storm.key(7, rate))
        self.assertEqual(["3xnone", "3x1G"], [storm.key(3, rate) for rate in ("none", "1gbit")])

    def test_what_a_profile_covers_of_reads_counts_by_blocks(self):
        block, piece = trace.BLOCK, trace.PIECE
        reads = [(0.0, 0, 3 * block), (0.1, 0, block), (0.1, 5 * piece + 512, 512)]
        self.assertEqual(0.75, trace.covered(reads, (0, 4), piece))
        self.assertEqual(0.25, trace.covered(reads, (5 * piece // block,), block))

    def test_without_ours_there_is_nothing_to_compare(self):
        self.assertEqual({}, storm.ratios([run("tree")]))
