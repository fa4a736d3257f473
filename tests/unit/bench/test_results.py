"""What benches leave behind, and the page of all of it."""

import json
import tempfile
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - starts a process, once, to find this machine's fonts
import testtools
from click.testing import CliRunner
from docutils.core import publish_doctree

from bench import results
from bench.__main__ import main
from planning.cmd.model import main as model
from planning.cmd.simulate import main as simulate
from planning.origin import Machine, Origin
from tests.unit.bench import test_plot, test_whole

CHURN = {
    "hosts": 5000,
    "images": 20,
    "workers": 3,
    "requests_per_s": 290.4,
    "requests": {"join 201": 7000},
    "requests_lost": 12,
    "hosts_died": 34,
    "workers_killed": 4,
    "volts_killed": 1,
    "databases_killed": 1,
    "cores_volt": 0.99,
    "cores_database": None,
    "rss_bytes_early": 199_000_000,
    "rss_bytes_late": 204_000_000,
    "complaints": [],
    "faults": ["image x, stripe 0:\nh_1 feeds *nobody*"],
}
STORM = {
    "workload": "replay",
    "floor_s": 30.0,
    "attached_s": 2.0,
    "first_s": 40.0,
    "median_s": 41.0,
    "last_s": 46.0,
    "reads_s": 44.0,
    "busiest_node_sent_bytes": 88_000_000,
    "fetch_ratio": 1.1,
    "stalls": 100,
    "stall_p50_ms": 3.0,
    "stall_p99_ms": 30.0,
    "stall_max_ms": 300.0,
    "processors_busy": 1.5,
}


class TestResults(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def enterContext(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def save(self, name, bench, runs, ratios=None):
        machine = Machine("Model 5 (8 MiB)", 2, 8 << 30, "6.1.0-13-amd64")
        words = f"python -m bench {bench}"
        about = Origin(words, "0123456789ab+", machine)
        found = results.Results(bench, about, runs, ratios)
        found.save(self.folder / name)

    def page(self):
        """The text of the page as docutils reads it, which must find nothing wrong."""
        done = CliRunner().invoke(main, ["results", str(self.folder)])
        assert done.exit_code == 0, done.output
        strict = {"report_level": 2, "halt_level": 2}
        source = Path(done.output.strip()).read_text()
        return publish_doctree(source, settings_overrides=strict).astext()

    def refusal(self):
        done = CliRunner().invoke(main, ["results", str(self.folder)])
        assert done.exit_code == 1
        assert not (self.folder / "results.rst").exists()
        return done.output

    def test_all_that_benches_wrote_is_on_one_page(self):
        self.save("churn.json", "churn", [CHURN])
        self.save("boots.json", "storm", [test_plot.run("virtman", **STORM)] * 5)
        ratios = test_whole.whole.ratios(test_whole.RUNS)
        self.save("copies.json", "whole", test_whole.RUNS, ratios)
        text = self.page()
        for part in (
            "boots", "churn", "copies", "$ python -m bench churn",
            "Commit 0123456789ab+; 2 processors (Model 5 (8 MiB)), 8.0 GiB", "290", "0.99",
            "join 201", "7,000", "image x, stripe 0: h_1 feeds *nobody*", "virtman", "46.0 s",
            "whole image to all at once", "1.15",
        ):  # fmt: skip
            assert part in text, part
        for picture in ("boots.svg", "copies.svg"):
            assert (self.folder / picture).read_bytes().startswith(b"<?xml")
        assert not (self.folder / "churn.svg").exists()
        assert self.page() == text  # made again, it is the same

    def make(self, command, *words):
        """Have a command of planning write a file, named as its subcommand."""
        about = Origin(f"virtman-tool {words[0]}", None, Machine("p", 2, 8 << 30, "6"))
        target = ("--json", str(self.folder / f"{words[0]}.json"))
        done = CliRunner().invoke(command, [*words, *target], obj=about)
        assert done.exit_code == 0, done.output

    def test_so_is_what_the_simulator_and_the_model_found(self):
        set_ = ("--working-set", "1M")
        site = ("--hosts", "4", "--link-rate", "1G", *set_)
        self.make(simulate, "agree", "--group", "simgrid")
        self.make(simulate, "predict", "--site", "small", "--hosts", "4")
        self.make(simulate, "run", *site, "--boot-time", "1")
        self.make(simulate, "ring", "--regions", "20", "--cache", "0.25", "--cv", "0.4")
        self.make(model, "times", "--designs", "cs_demand,trees_demand", *set_)
        self.make(model, "curves", "--designs", "cs_demand", "--hosts", "3", *set_)
        self.make(model, "size", *site, "--image", "8G", "--seconds", "40")
        self.save("churn.json", "churn", [CHURN])
        text = self.page()
        for part in (
            "churn", "$ virtman-tool predict", "Commit not known; 2 processors (p), 8.0 GiB",
            "simgrid: 255 hosts, 64 pieces", "0.41 s", "+0.5%", "small", "racks-not-told",
            "1,000,000,000 bit/s", "trees_demand", "over one without waits", "1,048,576 bytes",
            "read at home", "inverse", "fan-out", "the last VM is ready", "in time",
        ):  # fmt: skip
            assert part in text, part
        for picture in ("times.svg", "curves.svg"):
            assert (self.folder / picture).read_bytes().startswith(b"<?xml")

    def test_files_of_planning_need_not_tell_where_they_are_from(self):
        case = {"case": "lab: x", "ours": 1.0, "reference": 2.0, "difference": -0.5}
        storm = {
            "design": "ours", "hosts": 1000, "vms": 10_000, "link_bits_s": 25e9, "deaths": 0,
            "first_s": 1.0, "median_s": 2.0, "last_s": 3.0, "limit_s": 2.0,
            "source_over_set": 1.18, "uplink_over_set": 2.36,
        }  # fmt: skip
        prefetch = {
            "workload": "web", "rate": 1e6, "policy": "stream", "fetch_ratio": 1.24,
            "miss_rate": 0.081, "waited_s": 15.9, "buffering_ratio": 0.12,
        }  # fmt: skip
        for name, found in (
            ("a", {"agreement": [case]}), ("b", {"runs": [storm]}), ("c", {"runs": [prefetch]})
        ):  # fmt: skip
            (self.folder / f"{name}.json").write_text(json.dumps(found))
        text = self.page()
        for part in ("does not tell where", "lab: x", "-50.0%", "10,000", "1.50", "stream", "8.1%"):
            assert part in text, part

    def test_an_empty_folder_is_no_page(self):
        assert "there is no result in" in self.refusal()

    def test_what_is_no_file_of_a_bench_is_refused_by_name(self):
        good = {"bench": "churn", "command": "x", "runs": [CHURN]}
        good["machine"] = {"processor": "p", "processors": 1, "memory_bytes": 1, "kernel": "6"}
        for content, complaint in (
            ("{", "bad.json: no JSON that can be read"),
            ("[]", "bad.json: no file of a bench"),
            ("{}", "bad.json: no file of a bench: 'bench' is missing"),
            ('{"runs": []}', "bad.json: no file of a bench: 'bench' is missing"),
            ('{"runs": {"a": 1}}', "bad.json: no file of a bench"),
            ('{"agreement": 5}', "bad.json: its runs are not those of bench agree"),
            ('{"agreement": [{"case": "a"}]}', "bad.json: the figure 'ours' is missing"),
            ({"curves": [], "ideal": {"seconds": [1], "bytes": [9]}}, "bad.json: its runs are not"),
            (good | {"machine": {"name": "n1"}}, "bad.json: no file of a bench"),
            (good | {"bench": "tea"}, "bad.json: there is no bench 'tea', but agent, agree, churn"),
            (good | {"runs": [{"hosts": 1}]}, "bad.json: the figure 'images' is missing in a run"),
            (good | {"runs": []}, "bad.json: its runs are not those of bench churn"),
            (good | {"runs": [CHURN, CHURN]}, "bad.json: its runs are not those of bench churn"),
            (good | {"runs": ["fast"]}, "bad.json: its runs are not those of bench churn"),
            (
                good | {"runs": [CHURN | {"hosts": "many"}]},
                "bad.json: its runs are not those of bench churn",
            ),
        ):
            text = content if isinstance(content, str) else json.dumps(content)
            (self.folder / "bad.json").write_text(text)
            assert complaint in self.refusal(), (content, self.refusal())
