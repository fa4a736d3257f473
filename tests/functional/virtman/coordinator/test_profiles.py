"""Agents store boot profiles at a real Volt, and use the last one while it is away."""

import json

from tests.functional.virtman.base import PATIENCE, TestCase, UsedCase, hashes
from virtman.coordinator.client import VoltClient
from virtman.errors import (
    CoordinatorUnreachable,
    ImageUnknown,
    ProfileForeign,
    ProfileInvalid,
    ProfileStale,
    ProfileUnbound,
    ProfileUnknown,
)
from virtman.model.profile import merged
from virtman.model.profile_format import decode, encode


def profile(*runs, content="debian"):
    """Return the bytes of a profile of an image of the bed."""
    root, made = hashes(content)[0].root, None
    for run in runs:
        made = merged(made, run, root)
    return encode(made)


FIRST, SECOND, THIRD = (profile({piece: 0.5}) for piece in (1, 2, 3))


class VoltTest(TestCase):
    def setUp(self):
        super().setUp()
        self.host = self.asking("b", self.bed.volt.ground.token("host", "b"))
        self.operator = self.asking("operator", self.bed.volt.ground.operator)

    def asking(self, name, token):
        return VoltClient(self.bed.volt.url, name, PATIENCE, self.bed.access(name, token))

    def store(self, content, tag=None, image="debian"):
        self.host.store_profile(image, "boot", content, tag)

    def test_what_was_stored_is_fetched_with_its_tag(self):
        self.assertIsNone(self.host.profile("debian", "boot"))
        self.store(FIRST)
        content, tag = self.host.profile("debian", "boot")
        self.assertEqual(FIRST, content)
        self.assertIsNone(self.host.profile("debian", "database"))
        self.store(SECOND, tag)
        content, other = self.host.profile("debian", "boot")
        self.assertEqual(SECOND, content)
        self.assertNotEqual(tag, other)

    def test_of_two_that_store_at_once_one_merges_and_tries_again(self):
        self.store(FIRST)
        content, tag = self.host.profile("debian", "boot")
        self.store(SECOND, tag)
        self.assertRaises(ProfileStale, self.store, THIRD, tag)
        content, tag = self.host.profile("debian", "boot")
        made = merged(decode(content), {7: 0.5}, hashes()[0].root)
        self.store(encode(made), tag)
        self.assertEqual(made, decode(self.host.profile("debian", "boot")[0]))

    def test_a_first_one_is_not_stored_over_another(self):
        self.store(FIRST)
        self.assertRaises(ProfileStale, self.store, SECOND)
        self.assertEqual(FIRST, self.host.profile("debian", "boot")[0])

    def test_one_that_was_removed_is_no_longer_replaced(self):
        self.store(FIRST)
        _, tag = self.host.profile("debian", "boot")
        self.operator.remove_profile("debian", "boot")
        self.assertRaises(ProfileStale, self.store, SECOND, tag)

    def test_a_request_whose_answer_was_lost_is_sent_again(self):
        self.store(FIRST)
        self.store(FIRST)
        _, tag = self.host.profile("debian", "boot")
        for _ in range(2):
            self.store(SECOND, tag)
        self.assertEqual([2, 1], [one.revision for one in self.revisions()])

    def test_revisions_are_listed_and_fetched(self):
        self.assertEqual({}, self.host.profiles("debian"))
        self.assertRaises(ProfileUnknown, self.revisions)
        self.store(FIRST)
        self.operator.store_profile(
            "debian", "boot", SECOND, self.host.profile("debian", "boot")[1]
        )
        newest, first = self.revisions()
        self.assertEqual((None, "b", len(FIRST)), (newest.host, first.host, first.bytes))
        ((workload, listed),) = self.host.profiles("debian").items()
        self.assertEqual(("boot", 2, len(SECOND)), (workload, listed.revision, listed.bytes))
        self.assertEqual(FIRST, self.host.profile_at("debian", "boot", 1)[0])
        error = self.assertRaises(ProfileUnknown, self.host.profile_at, "debian", "boot", 3)
        self.assertIn("no revision 3", str(error))

    def test_what_does_not_fit_is_refused(self):
        self.bed.register("bare", hashed=False)
        for error, content, image in (
            (ProfileInvalid, b"nonsense", "debian"),
            (ProfileForeign, profile({1: 0}, content="other"), "debian"),
            (ProfileUnbound, FIRST, "bare"),
            (ImageUnknown, FIRST, "nowhere"),
        ):
            self.assertRaises(error, self.store, content, None, image)
        self.assertRaises(ImageUnknown, self.host.profile, "nowhere", "boot")

    def revisions(self):
        return self.host.profile_history("debian", "boot")


class RememberingTest(UsedCase):
    def setUp(self):
        super().setUp()
        self.volt = self.node.agent.coordinator

    def profile(self):
        return self.volt.profile("debian", "boot")

    def file(self, workload="boot"):
        return self.node.folder / "volt" / f"debian_{workload}.profile"

    def fetched(self):
        self.volt.store_profile("debian", "boot", FIRST, None)
        return self.profile()

    def test_the_last_one_is_used_while_volt_is_away(self):
        found = self.fetched()
        self.bed.volt.silence()
        self.node.stop()
        self.node.reboot()
        self.volt = self.node.agent.coordinator
        self.assertEqual(found, self.profile())
        self.assertRaises(CoordinatorUnreachable, self.volt.profile, "debian", "database")
        error = self.assertRaises(
            CoordinatorUnreachable, self.volt.store_profile, "debian", "boot", SECOND, found[1]
        )
        self.assertIn(self.bed.volt.url, str(error))
        self.bed.volt.silence(False)
        self.volt.store_profile("debian", "boot", SECOND, found[1])
        self.assertEqual(SECOND, self.profile()[0])
        self.bed.volt.silence()
        self.assertEqual(SECOND, self.profile()[0])

    def test_one_that_is_broken_or_of_another_image_counts_as_none(self):
        self.fetched()
        whole = self.file().read_bytes()
        tag = whole.partition(b"\n")[0]
        self.bed.volt.silence()
        for broken in (
            b"", whole[:-1], whole[:80], FIRST, b"\xff\n" + FIRST,
            tag + b"\n" + profile({1: 0}, content="other"),
        ):  # fmt: skip
            self.file().write_bytes(broken)
            self.assertRaises(CoordinatorUnreachable, self.profile)
        self.file().write_bytes(whole)
        self.assertEqual(FIRST, self.profile()[0])

    def test_one_a_workload_is_kept_and_goes_with_the_image(self):
        for content in (FIRST, SECOND):
            for workload in ("boot", "db"):
                found = self.volt.profile("debian", workload)
                self.volt.store_profile("debian", workload, content, found and found[1])
                self.volt.profile("debian", workload)
        folder = self.node.folder / "volt"
        kept = {"debian.json", "debian.hashes", "debian_boot.profile", "debian_db.profile"}
        self.assertEqual(kept, {path.name for path in folder.iterdir()})
        self.node.destroy("vm1")
        self.node.drop()
        self.assertEqual([], list(folder.iterdir()))
        self.profile()
        self.assertEqual([], list(folder.iterdir()))

    def test_one_that_volt_has_no_more_is_not_kept(self):
        self.fetched()
        self.bed.volt.ground.profiles.remove("debian", "boot")
        self.assertIsNone(self.profile())
        self.assertFalse(self.file().exists())

    def test_a_placement_names_the_newest_also_while_volt_is_away(self):
        self.fetched()
        self.assertEqual({"boot": 1}, self.volt.placement("debian").profiles)
        self.bed.volt.silence()
        self.assertEqual({"boot": 1}, self.volt.placement("debian").profiles)

    def test_records_of_an_agent_that_knew_no_profiles_are_read(self):
        file = self.node.folder / "volt" / "debian.json"
        record = json.loads(file.read_text())
        del record["placement"]["profiles"]
        file.write_text(json.dumps(record))
        self.bed.volt.silence()
        self.assertEqual({}, self.volt.placement("debian").profiles)
