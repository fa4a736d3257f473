"""What ``virtman-model`` prints, writes and refuses."""

import csv
import json
import tempfile
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - starts a process, once, to find this machine's fonts
import testtools
from click.testing import CliRunner

from bench.__main__ import main as bench
from planning.cmd.model import main
from planning.designs import DESIGNS
from planning.origin import Machine, Origin
from virtman.model.profile import Group, Profile
from virtman.model.profile_format import encode

ORIGIN = Origin("virtman-model", None, Machine("some", 2, 8 << 30, "6.1.0"))


class ModelCase(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_model(self, *words, command=main):
        done = CliRunner().invoke(command, [str(word) for word in words], obj=ORIGIN)
        return done.exit_code, done.output

    def written(self, *words):
        file = self.folder / "found.json"
        self.assertEqual(0, self.run_model(*words, "--json", file)[0])
        return json.loads(file.read_text())


class TimesTest(ModelCase):
    def test_a_row_for_each_design_and_a_column_for_each_number_of_hosts(self):
        code, said = self.run_model("times", "--hosts", "1,100")
        self.assertEqual(0, code)
        _, titles, *rows = said.splitlines()
        self.assertEqual(["hosts", "1", "100"], titles.split())
        self.assertEqual(list(DESIGNS), [row.split()[0] for row in rows])

    def test_files_have_the_same_figures(self):
        file = self.folder / "times.csv"
        found = self.written(
            "times", "--hosts", "4", "--designs", "cs_demand", "--working-set", "80M",
            "--link-rate", "100M,1G", "--csv", file,
        )  # fmt: skip
        self.assertEqual(80 * 2**20, found["working_set_bytes"])
        slow, fast = found["times"]
        self.assertEqual((1e8, 4), (slow["link_bits_s"], slow["hosts"]))
        self.assertLess(fast["boot_s"], slow["boot_s"])
        # a wait of 0.6 ms and the transfer of each of 1,280 pieces, at a quarter of the link
        self.assertAlmostEqual(20 + 1280 * 0.6e-3 + 80 * 2**20 / (1e8 / 32), slow["boot_s"], 5)
        with file.open() as stream:
            rows = list(csv.DictReader(stream))
        self.assertEqual([str(slow["boot_s"]), str(fast["boot_s"])], [r["boot_s"] for r in rows])

    def test_the_bench_has_the_same_command(self):
        words = ("times", "--hosts", "2")
        self.assertEqual(self.run_model(*words), self.run_model("model", *words, command=bench))


class CurvesTest(ModelCase):
    def test_a_profile_says_what_is_read(self):
        profile = self.folder / "boot.profile"
        groups = (Group(0, 1, (0, 1)), Group(5, 1, (9,)))
        profile.write_bytes(encode(Profile("ab" * 32, 65536, 1, 1000, groups)))
        found = self.written("curves", "--profile", profile, "--hosts", "3")
        self.assertEqual((6.0, 3 * 65536), tuple(found["ideal"][key][-1] for key in found["ideal"]))
        self.assertEqual(list(DESIGNS), [one["design"] for one in found["curves"]])
        found = self.written("curves", "--profile", profile, "--boot-time", "3")
        self.assertEqual(3.0, found["ideal"]["seconds"][-1])

    def test_pictures(self):
        for suffix, begin in (("svg", b"<?xml"), ("png", b"\x89PNG")):
            for command in ("curves", "times"):
                file = self.folder / f"{command}.{suffix}"
                words = (command, "--working-set", "1M", "--plot", file)
                self.assertEqual(0, self.run_model(*words)[0])
                self.assertTrue(file.read_bytes().startswith(begin))


class RefusedTest(ModelCase):
    def test_what_cannot_be_is_told(self):
        broken = self.folder / "broken"
        broken.write_bytes(b"VMBP")
        for words, told in (
            (("times", "--link-rate", "-5M"), "no rate: write it like 25M or 10G"),
            (("times", "--link-rate", "0"), "it must carry some"),
            (("times", "--link-rate", "1G,1G"), "something twice"),
            (("times", "--piece", "64X"), "no size"),
            (("times", "--attach", "1h"), "no time"),
            (("times", "--hosts", "1,0"), "no number of hosts"),
            (("times", "--designs", "cs_d"), "no such design: cs_d; there are cs_demand"),
            (("times", "--stripes", "3"), "take a fan-out of at least the number of stripes"),
            (("times", "--boot-time", "0"), "a boot time of 0"),
            (("curves", "--profile", broken), "no valid boot profile"),
            (("curves", "--profile", broken, "--working-set", "1M"), "leave out --working-set"),
            (("curves", "--profile", self.folder / "none"), "No such file"),
            (("curves", "--plot", "curves.gif"), "must end with .svg or .png"),
            (("curves", "--json", self.folder / "none" / "file"), "No such file"),
        ):
            code, said = self.run_model(*words)
            self.assertNotEqual(0, code, words)
            self.assertIn(told, said)
            self.assertNotIn("Traceback", said)


class SizeTest(ModelCase):
    SITE = (
        "size", "--hosts", "100", "--link-rate", "1G", "--image", "15G", "--working-set", "200M",
        "--seconds", "30",
    )  # fmt: skip

    def test_answers_have_reasons(self):
        found = self.written(*self.SITE, "--racks", "4", "--uplink-rate", "10G", "--others", "0.2")
        self.assertTrue(all(one["reason"] for one in found["answers"]))
        self.assertTrue(found["reached"])
        self.assertEqual("guest", found["limits"][0]["what"])
        code, said = self.run_model(*self.SITE)
        self.assertEqual(0, code)
        for words in ("stripes: 2\n", "in time, limited by\n    guest: 21.6 s\n"):
            self.assertIn(words, said)

    def test_a_table_has_the_same(self):
        file = self.folder / "size.csv"
        found = self.written(*self.SITE, "--csv", file)
        with file.open() as stream:
            rows = list(csv.DictReader(stream))
        self.assertEqual(
            [("answer", one["what"], one["reason"]) for one in found["answers"]]
            + [("limit", one["what"], one["reason"]) for one in found["limits"]],
            [(row["kind"], row["what"], row["reason"]) for row in rows],
        )
        (last,) = (row for row in rows if row["what"] == found["limits"][0]["what"])
        self.assertEqual((str(found["last_s"]), "s"), (last["value"], last["unit"]))

    def test_what_cannot_be_is_told(self):
        for words, told in (
            (("--racks", "4"), "say what their uplinks carry, --uplink-rate"),
            (("--racks", "101", "--uplink-rate", "1G"), "some are empty"),
            (("--racks", "4", "--uplink-rate", "0"), "the uplink carries nothing"),
            (("--source-rate", "0"), "the source carries nothing"),
            (("--seconds", "1"), "want more seconds"),
            (("--working-set", "16G"), "larger than the image"),
            (("--working-set", "1"), "less than a piece of 65536 bytes"),
            (("--others", "1"), "not in the range"),
        ):
            code, said = self.run_model(*self.SITE, *words)
            self.assertNotEqual(0, code, words)
            self.assertIn(told, said)
