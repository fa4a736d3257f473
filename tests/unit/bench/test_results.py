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
        machine = results.Machine("Model 5 (8 MiB)", 2, 8 << 30, "6.1.0-13-amd64")
        words = f"python -m bench {bench}"
        found = results.Results(bench, words, "0123456789ab+", machine, runs, ratios)
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

    def test_commands_name_no_file_that_they_write(self):
        words = [
            "whole",
            "--nodes",
            "3",
            "--json",
            "/secret/a",
            "--plot=/secret/b",
            "--bytes",
            "8M",
        ]
        assert results.command(words) == "python -m bench whole --nodes 3 --bytes 8M"
        assert results.command(["churn", "--json=/secret/a b"]) == "python -m bench churn"

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

    def test_an_empty_folder_is_no_page(self):
        assert "there is no result in" in self.refusal()

    def test_what_is_no_file_of_a_bench_is_refused_by_name(self):
        good = {"bench": "churn", "command": "x", "runs": [CHURN]}
        good["machine"] = {"processor": "p", "processors": 1, "memory_bytes": 1, "kernel": "6"}
        for content, complaint in (
            ("{", "bad.json: no JSON that can be read"),
            ("[]", "bad.json: no file of a bench"),
            ("{}", "bad.json: no file of a bench: 'bench' is missing"),
            (good | {"machine": {"name": "n1"}}, "bad.json: no file of a bench"),
            (good | {"bench": "tea"}, "bad.json: there is no bench 'tea', but agent, churn"),
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
