"""What open-iscsi is told in its own files."""

import errno
import stat
from pathlib import Path

import fixtures
import testtools

from virtman.privileged import iscsi

TARGET = "iqn.2026-11.org.virtman:a:i"
RECORD = """\
# BEGIN RECORD 2.1.8
node.name = iqn.2026-11.org.virtman:a:i
node.startup = automatic
node.session.auth.authmethod = None
node.session.timeo.replacement_timeout = 120
node.conn[0].address = 10.0.0.1
# END RECORD
"""


class RecordTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        folder = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MockPatchObject(iscsi, "_RECORDS", (folder / "no", folder)))
        self.folder = folder / TARGET
        self.folder.mkdir()
        self.record = self.folder / "10.0.0.1,3260"
        self.record.write_text(RECORD)

    def remember(self, user, secret):
        iscsi._remember("10.0.0.1", 3260, TARGET, user, secret)
        lines = self.record.read_text().splitlines()
        return lines, dict(line.split(" = ") for line in lines[1:-1])

    def test_a_secret_is_written_where_only_root_reads(self):
        lines, settings = self.remember("i", "secret")
        self.assertEqual(("# BEGIN RECORD 2.1.8", "# END RECORD"), (lines[0], lines[-1]))
        self.assertEqual("CHAP", settings["node.session.auth.authmethod"])
        self.assertEqual("i", settings["node.session.auth.username"])
        self.assertEqual("secret", settings["node.session.auth.password"])
        self.assertEqual("2", settings["node.session.timeo.replacement_timeout"])
        self.assertEqual("10.0.0.1", settings["node.conn[0].address"])
        self.assertEqual(0o600, stat.S_IMODE(self.record.stat().st_mode))
        self.assertEqual([self.record], list(self.folder.iterdir()))

    def test_each_setting_is_there_once(self):
        self.remember("i", "old")
        lines, _ = self.remember("i", "new")
        names = [line.split(" = ")[0] for line in lines]
        self.assertEqual(len(names), len(set(names)))
        self.assertNotIn("old", "".join(lines))

    def test_nothing_to_prove_leaves_no_secret(self):
        self.remember("i", "old")
        lines, settings = self.remember("", "")
        self.assertEqual("None", settings["node.session.auth.authmethod"])
        self.assertNotIn("password", "".join(lines))

    def test_a_record_in_a_folder_of_its_own_is_found(self):
        self.record.unlink()
        self.record = self.folder / "10.0.0.1,3260,1" / "default"
        self.record.parent.mkdir()
        self.record.write_text(RECORD)
        self.assertIn("node.session.auth.password", self.remember("i", "secret")[1])

    def test_a_target_that_is_not_known_is_an_error(self):
        self.assertRaises(OSError, iscsi._remember, "10.0.0.9", 3260, TARGET, "", "")


class RaceTest(testtools.TestCase):
    """iscsiadm fails if the record of any target goes while it goes through all of them."""

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(iscsi, "run", self.run_))
        self.useFixture(fixtures.MockPatchObject(iscsi, "time"))
        self.answers, self.asked = [], []

    def run_(self, *words):
        self.asked.append(words)
        if self.answers and (status := self.answers.pop(0)):
            raise OSError(errno.EIO, f"iscsiadm: status {status}: its words")

    def failure(self, *answers, words="-o delete"):
        """Return the status with which it fails at last; nothing if it does not."""
        self.answers, self.asked = list(answers), []
        try:
            iscsi._run(*words.split())
        except OSError as err:
            return err.strerror.split()[2]
        finally:
            self.assertEqual([("iscsiadm", *words.split())], list(set(self.asked)))
        return None

    def test_it_is_asked_again(self):
        self.assertIsNone(self.failure(6, 6, 0))
        self.assertEqual(3, len(self.asked))

    def test_what_it_had_done_nevertheless_is_done(self):
        for words, status in (("-o delete", 21), ("--logout", 21), ("--login", 15)):
            self.assertIsNone(self.failure(6, status, words=words))
            self.assertEqual(f"{status}:", self.failure(status, words=words))

    def test_anything_else_is_an_error_at_once(self):
        for words in ("-o delete", "-o new", "--login"):
            self.assertEqual("19:", self.failure(19, words=words))
            self.assertEqual("19:", self.failure(6, 19, words=words))
            self.assertEqual(2, len(self.asked))

    def test_one_that_fails_ever_again_is_given_up(self):
        for words in ("-o delete", "-o new"):
            self.assertEqual("6:", self.failure(*[6] * 100, words=words))
