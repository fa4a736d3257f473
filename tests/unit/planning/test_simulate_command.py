"""What ``virtman-simulate`` prints, writes and refuses."""

import json
import tempfile
from pathlib import Path

import testtools
from click.testing import CliRunner

from bench.fanout import KILLED
from planning import measured
from planning.cmd.simulate import main
from planning.origin import Machine, Origin
from planning.replay import policy, traces
from planning.replay.traces import Trace

ORIGIN = Origin("virtman-simulate", "0123456789ab", Machine("some", 2, 8 << 30, "6.1.0"))
RUN = ("run", "--hosts", "6", "--link-rate", "100M", "--working-set", "8M", "--boot-time", "2")


class SimulateTest(testtools.TestCase):
    def simulate(self, *words):
        done = CliRunner().invoke(main, [str(word) for word in words], obj=ORIGIN)
        return done.exit_code, done.output

    def written(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "found.json")
            code, said = self.simulate(*words, "--json", file)
            self.assertEqual(0, code, said)
            return json.loads(file.read_text())

    def test_one_storm(self):
        (found,) = self.written(*RUN, "--racks", "2", "--uplink-rate", "200M")["runs"]
        self.assertEqual(
            ("forest", 6, 0), tuple(found[key] for key in ("design", "hosts", "deaths"))
        )
        self.assertLess(found["first_s"], found["last_s"] + 1e-9)
        self.assertIn("last/limit", self.simulate(*RUN)[1])

    def test_a_ring_beside_trees(self):
        words = ("ring", "--hosts", "7", "--regions", "70", "--cache", "0.25", "--cv", "0,0.4")
        found = self.written(*words)
        source = {one["design"]: one["source"] for one in found["reads"]}
        self.assertEqual(0, source["ring"])
        self.assertLess(0.1, source["trees"])
        self.assertLess(source["trees"], source["alone"])
        cv = {(one["cv"], one["weights"]): one["cv_after"] for one in found["loads"]}
        self.assertLess(cv[0, "inverse"], 0.01)
        self.assertLess(cv[0.4, "room"], cv[0.4, "equal"])
        near = self.written(*words, "--racks", "2", "--own-rack")["reads"][-1]
        self.assertEqual(near["source"], near["rack_to_rack"])

    def test_a_ring_that_cannot_be(self):
        for words, told in (
            (("--cache", "0"), "no share of the image"),
            (("--cache", "1.5"), "no share of the image"),
            (("--cv", "-1"), "no number"),
            (("--racks", "8"), "cannot fill 8 racks"),
        ):
            code, said = self.simulate("ring", *words)
            self.assertNotEqual(0, code)
            self.assertIn(told, said)

    def test_what_goes_wrong_meanwhile(self):
        (found,) = self.written(
            *RUN, "--deaths", "0.2", "--joins", "2", "--stragglers", "0.2", "--others", "0.3",
            "--no-prefetch", "--no-racks-told", "--shape", "tree", "--cascade",
        )["runs"]  # fmt: skip
        (calm,) = self.written(*RUN)["runs"]
        self.assertGreater(found["last_s"], calm["last_s"])

    def test_costs_of_another_machine(self):
        hops = {
            "attach": {"1": 1.0, "2": 3.0},
            "virtman": {"block_mean_ms": {"1": 0.2, "2": 0.5, "3": 0.8}},
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "hops.json")
            file.write_text(json.dumps({"runs": [hops]}))
            costs = measured.read(file)
            self.assertEqual(3.0, costs.attach_s)
            self.assertAlmostEqual(0.3e-3, costs.hop_s)
            (found,) = self.written(*RUN, "--measured", file)["runs"]
            self.assertGreater(found["last_s"], 3 + 2)
            for text in ("{", "[]", '{"runs": [{"attach": {}}]}', '{"runs": []}'):
                file.write_text(text)
                code, said = self.simulate(*RUN, "--measured", file)
                self.assertEqual(1, code)
                self.assertIn("is no file of python -m bench hops", said)

    def test_agreement_is_written(self):
        found = self.written("agree", "--group", "model")["agreement"]
        self.assertEqual({"case", "ours", "reference", "difference"}, set(found[0]))
        self.assertAlmostEqual(found[0]["ours"] / found[0]["reference"] - 1, found[0]["difference"])

    def test_runs_of_the_bench_are_cases(self):
        size, bits = 6 * 2**20, 25_000_000
        limit = size * 8 / bits
        order = {"nodes": 3, "link_bits_s": bits, "bytes": size, "last_s": 1.1 * limit}
        boot = {
            "nodes": 3, "link_bits_s": bits, "working_set_bytes": size, "last_s": 9.0,
            "reads_s": 7.0, "attached_s": 3.0, "warm_last_s": 8.0,
        }  # fmt: skip
        killed = {"killed_s": limit / 2, "moved_s": 5.0, "last_s": limit + 2}
        runs = [
            {"shape": "forest", **order},
            {"shape": "tree", **order},
            {"shape": KILLED, **order, **killed},
            {"peer": "tree", **boot},
            {"peer": "virtman", **boot},
            {"peer": "nfs", **boot},
            {"peer": "virtman", **boot, "link_bits_s": 0},
            {"peer": "virtman", **boot, "workload": "boot"},
        ]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "fanout.json")
            file.write_text(json.dumps({"runs": runs}))
            found = self.written("agree", "--fanout", file)["agreement"]
            self.assertEqual(
                ["in order, forest", "in order, tree", "in order, forest, one killed",
                 "25 Mbit/s, tree", "25 Mbit/s, prefetch"],
                [one["case"].partition("nodes read ")[2] or one["case"].partition("nodes, ")[2]
                 for one in found],
            )  # fmt: skip
            self.assertEqual(
                [one["last_s"] for one in runs[:5]], [one["reference"] for one in found]
            )
            forest, _, dead, tree, ahead = (one["ours"] for one in found)
            self.assertAlmostEqual(1.06 * limit, forest, delta=0.2)
            self.assertTrue(forest + 0.5 < dead < forest + 2.5)
            self.assertLess(ahead, tree)
            for text, told in (
                ("{", "is no file of python -m bench fanout"),
                ("[]", "is no file of python -m bench fanout"),
                ('{"runs": [{"shape": "tree"}]}', "is no file of python -m bench fanout"),
                (json.dumps({"runs": runs[5:]}), "has no run that can be simulated"),
            ):
                file.write_text(text)
                code, said = self.simulate("agree", "--fanout", file)
                self.assertEqual(1, code)
                self.assertIn(told, said)

    def test_predictions_are_written(self):
        found = self.written("predict", "--site", "deaths", "--hosts", "10")["runs"]
        self.assertEqual(["paper", "ours", "racks-not-told"], [one["design"] for one in found])
        self.assertTrue(all(one["hosts"] == 10 and one["deaths"] <= 1 for one in found))
        keys = {
            "site", "design", "hosts", "vms", "link_bits_s", "source_bits_s", "working_set_bytes",
            "deaths", "first_s", "median_s", "last_s", "limit_s", "last_over_limit",
            "source_over_set", "busiest_over_set", "uplink_over_set", "waits", "longest_wait_s",
        }  # fmt: skip
        for one in found:
            self.assertEqual(keys, one.keys())
        self.assertLess(found[1]["last_s"], found[0]["last_s"])

    def test_policies_of_prefetch_side_by_side(self):
        menu = {number: 0.1 for number in range(4)}
        runs = tuple(
            menu | {first + number: 60.0 for number in range(20)} for first in (100, 200, 100, 200)
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "menu.json")
            traces.write(file, Trace("menu", 65536, runs))
            words = ("prefetch", "--traces", file, "--line", "8M/100ms")
            found = self.written(*words)["runs"]
            self.assertIn("8 Mbit/s", self.simulate(*words)[1])
        self.assertEqual(list(policy.NAMES), [one["policy"] for one in found])
        self.assertEqual({("menu", 4, 1e6, 0.1)}, {
            (one["workload"], one["runs"], one["rate"], one["round_trip_s"]) for one in found
        })  # fmt: skip
        demand, profile, union, _, clusters = found
        self.assertEqual((1.0, 1.0), (demand["miss_rate"], demand["fetch_ratio"]))
        # two of three other runs, or the one that read the same, are of the other kind
        self.assertAlmostEqual(44 / 24, union["fetch_ratio"])
        self.assertLess(clusters["miss_rate"], profile["miss_rate"])
        for one in found:
            self.assertAlmostEqual(one["waited_s"] / one["seconds"], one["buffering_ratio"])

    def test_what_cannot_be_is_told(self):
        for words, told in (
            ((*RUN, "--racks", "7"), "7 racks for 6 hosts"),
            ((*RUN, "--stripes", "3"), "3 stripes with fan-out 2 cannot carry every host"),
            ((*RUN, "--shape", "star", "--fanout", "2"), "a star has its own stripes"),
            ((*RUN, "--link-rate", "-1G"), "no rate"),
            ((*RUN, "--link-rate", "1"), "over a host's link alone, the working set takes 67,1"),
            ((*RUN, "--link-rate", "1M", "--others", "0.999"), "at most 21,600 are simulated"),
            ((*RUN, "--uplink-rate", "1"), "over an uplink alone"),
            ((*RUN, "--source-rate", "1"), "over the source's link alone"),
            ((*RUN, "--working-set", "1"), "less than a piece of 65,536 bytes"),
            ((*RUN, "--boot-time", "99999"), "a boot takes at most 21,600 s"),
            ((*RUN, "--uplink-rate", "0"), "the uplink carries nothing"),
            ((*RUN, "--source-rate", "0"), "the source carries nothing"),
            ((*RUN, "--deaths", "1"), "not in the range"),
            (("run", "--hosts", "2"), "Missing option"),
            (("agree", "--group", "labs"), "no such group: labs"),
            (("predict", "--site", "moon"), "no such site: moon"),
            (("prefetch", "--policy", "luck"), "no such policy: luck"),
            (("prefetch", "--line", "8M"), "no line"),
            (("prefetch", "--line", "0/1ms"), "carries nothing"),
            (("prefetch", "--traces", "/dev/null"), "is no file"),
        ):
            code, said = self.simulate(*words)
            self.assertNotEqual(0, code, words)
            self.assertIn(told, said)
            self.assertNotIn("Traceback", said)
