"""``virtman profile`` asks a real Volt, which needs no agent."""

import json
import subprocess
import sys
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import fixtures
from click.testing import CliRunner

from tests.functional.virtman.base import TestCase, hashes
from virtman.cmd.shell import shell
from virtman.errors import (
    CoordinatorUnreachable,
    Forbidden,
    ImageUnknown,
    InvalidName,
    PlotMissing,
    ProfileForeign,
    ProfileInvalid,
    ProfileStale,
    ProfileUnbound,
    ProfileUnknown,
)
from virtman.model.profile import Profile, merged
from virtman.model.profile_format import LARGEST, decode, encode

ROOT = hashes()[0].root
SVG = "{http://www.w3.org/2000/svg}"


def profile_of(*runs, root=ROOT):
    made = Profile(root, 65536, 0, 1000, ())
    for run in runs:
        made = merged(made, run, root)
    return encode(made)


TWICE = profile_of({0: 0.2, 40: 0.3, 7: 2.5}, {0: 0.1, 40: 0.2}, {0: 0.1})
ONCE = profile_of({5: 0})


class ProfileCase(TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.folder / "boot.profile"
        self.token = self.bed.access("operator", self.bed.volt.ground.operator).token_file

    def words(self, *words):
        return ["profile", *words, "--volt", self.bed.volt.url, "--token-file", self.token]

    def invoke(self, *words, data=None):
        """Return what a command prints, as bytes; raise what it raises."""
        done = CliRunner().invoke(shell, self.words(*map(str, words)), input=data)
        if isinstance(done.exception, Exception):
            raise done.exception
        self.assertEqual(0, done.exit_code, done.output)
        return done.stdout_bytes

    def lines(self, *words, **settings):
        return [line.split() for line in self.invoke(*words, **settings).decode().splitlines()]

    def json(self, *words):
        return json.loads(self.invoke(*words, "--json"))

    def store(self, content, *words):
        self.file.write_bytes(content)
        return self.invoke("import", "debian", self.file, *words).decode()

    def assert_refused(self, kind, *words, data=None):
        return str(self.assertRaises(kind, self.invoke, *words, data=data))

    def kept(self):
        rows = self.bed.volt.ground.profiles.index("debian")
        return {row.workload: row.revision for row in rows}


class ProfileTest(ProfileCase):
    def test_what_was_imported_is_listed_and_exported(self):
        self.assertEqual([["WORKLOAD", "REVISION", "SIZE", "STORED"]], self.lines("list", "debian"))
        self.assertEqual(
            "profile boot of image debian: runs: 3, pieces: 3 of 64K, 0.2 MiB\n", self.store(TWICE)
        )
        self.store(ONCE, "--workload", "db")
        self.store(ONCE)
        _, *listed = self.lines("list", "debian")
        self.assertEqual(
            [["boot", "2", str(len(ONCE))], ["db", "1", str(len(ONCE))]],
            [line[:3] for line in listed],
        )
        _, newest, first = self.lines("history", "debian")
        self.assertEqual(["1", str(len(TWICE)), "-"], [*first[:2], first[3]])
        self.assertEqual("2", newest[0])
        copy = self.folder / "copy"
        for words, content in (
            ([], ONCE), (["--revision", 1], TWICE), (["--workload", "db"], ONCE),
        ):  # fmt: skip
            self.invoke("export", "debian", copy, *words)
            self.assertEqual(content, copy.read_bytes())

    def test_json_is_for_programs(self):
        self.store(TWICE)
        self.bare()
        self.assertEqual([], self.json("list", "bare"))
        (listed,) = self.json("list", "debian")
        self.assertEqual({"workload", "revision", "bytes", "stored_at"}, listed.keys())
        (revision,) = self.json("history", "debian")
        del listed["workload"]
        self.assertEqual({**listed, "host": None}, revision)
        shown = self.json("show", "debian")
        bands, wanted = shown.pop("bands"), shown.pop("wanted")
        self.assertEqual(
            {
                "image": "debian", "workload": "boot", "root_hash": ROOT, "runs": 3,
                "piece_size": 65536, "band_ms": 1000, "pieces": 3, "bytes": 3 * 65536, "common": 2,
                "latest": 3,
            },
            shown,
        )  # fmt: skip
        self.assertEqual(list(decode(TWICE).wanted()), wanted)
        early, late = bands
        self.assertEqual((0.0, 2, 131072), (early["begin"], early["pieces"], early["bytes"]))
        self.assertEqual((2.0, 1, 65536), (late["begin"], late["pieces"], late["bytes"]))
        self.assertAlmostEqual(5 / 6, early["share"])

    def test_a_profile_is_shown_by_bands(self):
        self.store(TWICE)
        self.assertEqual(
            f"root hash: {ROOT}\n"
            "runs: 3\n"
            "pieces: 3 of 64K, 0.2 MiB\n"
            "in at least half of the runs: 2\n"
            "runs that are kept: 3\n"
            "SECONDS  PIECES  MIB  SHARE\n"
            "0        2       0.1  83%\n"
            "2        1       0.1  33%\n",
            self.invoke("show", "debian").decode(),
        )

    def test_standard_input_and_output_serve_as_files(self):
        self.invoke("import", "debian", "-", data=TWICE)
        self.assertEqual(TWICE, self.invoke("export", "debian", "-"))

    def test_what_was_deleted_is_gone_and_that_can_be_repeated(self):
        self.store(TWICE)
        for _ in range(2):
            self.invoke("delete", "debian")
        self.assertEqual({}, self.kept())
        for verb in (["show"], ["history"]):
            self.assertIn("no profile boot", self.assert_refused(ProfileUnknown, *verb, "debian"))
        self.file.unlink()
        self.assert_refused(ProfileUnknown, "export", "debian", self.file)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_a_file_that_is_no_profile_is_refused_before_it_is_sent(self):
        for content, reason in (
            (b"nonsense", "does not begin like one"),
            (TWICE[:-1], "checksum is wrong"),
            (b"", "does not begin like one"),
            (TWICE + bytes(LARGEST), f"more than {LARGEST} bytes"),
        ):
            self.file.write_bytes(content)
            with mock.patch("requests.Session.request") as asked:
                said = self.assert_refused(ProfileInvalid, "import", "debian", self.file)
            asked.assert_not_called()
            self.assertIn("no valid boot profile: ", said)
            self.assertIn(reason, said)
            self.assertIn("export it again", said)

    def test_a_profile_of_another_image_is_refused_before_it_is_sent(self):
        other = hashes("other")[0].root
        self.file.write_bytes(profile_of({1: 0}, root=other))
        with mock.patch("virtman.coordinator.client.VoltClient.store_profile") as sent:
            said = self.assert_refused(ProfileForeign, "import", "debian", self.file)
            self.file.write_bytes(TWICE)
            self.bare()
            self.assert_refused(ProfileUnbound, "import", "bare", self.file)
        sent.assert_not_called()
        for word in (other, ROOT, "record a new profile"):
            self.assertIn(word, said)

    def test_one_that_was_stored_meanwhile_is_not_overwritten(self):
        self.store(TWICE)
        found = self.bed.volt.ground.profiles.show("debian", "boot")[0], '"that before"'
        with mock.patch("virtman.coordinator.client.VoltClient.profile", lambda *names: found):
            self.file.write_bytes(ONCE)
            self.assert_refused(ProfileStale, "import", "debian", self.file)
        self.assertEqual({"boot": 1}, self.kept())

    def test_a_host_may_import_but_not_delete(self):
        self.token = self.bed.access("a", self.bed.volt.ground.token("host", "a")).token_file
        self.store(TWICE)
        self.assertEqual("a", self.json("history", "debian")[0]["host"])
        self.assertIn("--token-file", self.assert_refused(Forbidden, "delete", "debian"))
        self.assertEqual({"boot": 1}, self.kept())

    def test_what_cannot_be_is_refused(self):
        self.file.write_bytes(TWICE)
        for kind, *words in (
            (ImageUnknown, "list", "nowhere"),
            (ImageUnknown, "import", "nowhere", self.file),
            (InvalidName, "show", "De_bian"),
            (InvalidName, "show", "debian", "--workload", "a/b"),
            (InvalidName, "import", "debian", self.file, "--workload", ""),
        ):
            self.assert_refused(kind, *words)
        self.store(TWICE)
        said = self.assert_refused(ProfileUnknown, "show", "debian", "--revision", 9)
        self.assertIn("no revision 9", said)
        self.bed.volt.silence()
        self.assert_refused(CoordinatorUnreachable, "show", "debian")

    def test_an_error_is_a_line_with_its_code(self):
        done = subprocess.run(
            [sys.executable, "-m", "virtman.cmd.shell", *self.words("show", "debian")],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr, r"^virtman: [^\n]* \[virtman\.profile\.unknown\]\n$")

    def bare(self):
        """Have an image without a hash tree."""
        self.bed.register("bare", hashed=False)


class PlotTest(ProfileCase):
    def plot(self, name, *words):
        file = self.folder / name
        self.invoke("plot", "debian", file, *words)
        return file.read_bytes()

    def test_an_svg_has_the_axes_and_a_dash_for_each_piece(self):
        self.store(TWICE)
        root = ElementTree.fromstring(self.plot("boot.svg"))
        self.assertEqual(f"{SVG}svg", root.tag)
        texts = {"".join(one.itertext()).strip() for one in root.iter(f"{SVG}text")}
        for text in ("debian, boot; runs: 3", "seconds since the boot began",
                     "offset in the image, MiB", "share of the runs that read it"):  # fmt: skip
            self.assertIn(text, texts)
        (lines,) = (one for one in root.iter(f"{SVG}g") if one.get("id") == "pieces")
        self.assertEqual(3, len(list(lines.iter(f"{SVG}path"))))

    def test_a_png_is_one(self):
        self.store(TWICE)
        image = self.plot("boot.PNG")
        self.assertTrue(image.startswith(b"\x89PNG\r\n\x1a\n"))
        self.assertTrue(image.endswith(b"IEND\xaeB`\x82"))

    def test_an_empty_profile_is_an_empty_figure(self):
        self.store(profile_of())
        self.assertIn(b"debian, boot; runs: 0", self.plot("boot.svg"))

    def test_another_suffix_is_refused(self):
        self.store(TWICE)
        for name in ("boot.pdf", "svg", "-"):
            done = CliRunner().invoke(shell, self.words("plot", "debian", name))
            self.assertEqual(2, done.exit_code)
            self.assertIn("must end with .svg or .png", done.output)

    def test_without_matplotlib_it_says_what_to_install(self):
        self.store(TWICE)
        with mock.patch.dict(sys.modules, {"matplotlib": None}):
            said = self.assert_refused(PlotMissing, "plot", "debian", self.folder / "boot.svg")
        self.assertIn("install the Python package matplotlib", said)
        self.assertFalse((self.folder / "boot.svg").exists())
