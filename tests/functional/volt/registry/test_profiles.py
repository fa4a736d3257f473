"""Which profiles of images Volt keeps, and whose."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401

from tests.functional.volt.registry.base import NOW, TreesCase, portal
from tests.profiles import ROOT_HASH, SIZE, UPPER_HASHES, profile, tag
from volt import errors
from volt.db.profiles import KEPT
from volt.model.images import NewImage
from volt.model.profiles import LARGEST, Condition, Profile, Profiled, Revision, parse
from volt.placement.rules import Shape
from volt.registry.profiles import WORKLOADS
from volt.transport import Portal

NEW = Condition(none_match=frozenset("*"))


class ProfilesCase(TreesCase):
    def setUp(self):
        super().setUp()
        self.profiles = self.ground.profiles
        self.make("v")

    def make(self, name, root_hash=ROOT_HASH):
        """Create an image with a hash tree."""
        source = Portal("127.0.0.1", self.ground.source_port, "iqn.2003-01.org.example:s", 0)
        new = NewImage(name, SIZE, Shape.FOREST, 2, 2, source, root_hash=root_hash,
                       salt=ROOT_HASH, upper_hashes=UPPER_HASHES)  # fmt: skip
        self.images.create(new, NOW)

    def store(self, content=b"pieces", image="v", workload="boot", **how):
        return self.profiles.store(image, workload, parse(profile(content)), NOW, **how)

    def revisions(self, workload="boot"):
        return [one.revision for one in self.profiles.history("v", workload)]


class TestProfiles(ProfilesCase):
    def test_each_workload_has_revisions_of_its_own(self):
        size = len(profile(b"1"))
        assert self.store(b"1", host="a") == (Profile("boot", 1, size, NOW), True)
        assert self.store(b"2") == (Profile("boot", 2, size, NOW), False)
        assert self.store(b"3", workload="web")[0].revision == 1
        assert [(one.workload, one.revision) for one in self.profiles.index("v")] == [
            ("boot", 2),
            ("web", 1),
        ]
        assert self.profiles.history("v", "boot") == [
            Revision(2, size, NOW, None),
            Revision(1, size, NOW, "a"),
        ]
        assert self.profiles.show("v", "boot") == (profile(b"2"), tag(b"2"))
        assert self.profiles.show("v", "boot", 1) == (profile(b"1"), tag(b"1"))

    def test_the_largest_comes_back_as_it_was(self):
        content = bytes(range(256)) * 4095
        self.store(content)
        assert self.profiles.show("v", "boot")[0] == profile(content)
        assert len(profile(content)) > LARGEST - 256

    def test_the_last_revisions_are_kept(self):
        for number in range(KEPT + 2):
            self.store(b"%d" % number)
        self.store(workload="web")
        assert self.revisions() == list(range(KEPT + 2, 2, -1))
        gone = self.assertRaises(errors.ProfileUnknown, self.profiles.show, "v", "boot", 2)
        assert "has no revision 2: only the last 8 are kept" in str(gone)

    def test_the_same_bytes_are_no_new_revision(self):
        first = self.store()
        later = self.profiles.store("v", "boot", parse(profile()), NOW + timedelta(1))
        assert later == (first[0], False)

    def test_of_two_who_store_at_once_one_has_to_look_again(self):
        def store(number, condition):
            try:
                return self.store(b"%d" % number, condition=condition)[0].revision
            except errors.ProfileStale:
                return None

        for revision in (1, 2):
            there = frozenset({self.profiles.show("v", "boot")[1]}) if revision > 1 else None
            condition = Condition(match=there) if there else NEW
            with ThreadPoolExecutor(8) as pool:
                numbers = range(10 * revision, 10 * revision + 8)
                found = list(pool.map(store, numbers, [condition] * 8))
            assert sorted(found, key=str) == [revision] + 7 * [None]

    def test_a_refusal_says_what_to_do(self):
        self.store()
        for condition in (NEW, Condition(match=frozenset("a"))):
            stale = self.assertRaises(errors.ProfileStale, self.store, b"2", condition=condition)
            assert "is at revision 1" in str(stale)
            assert "fetch it" in str(stale)
        self.profiles.remove("v", "boot")
        gone = self.assertRaises(
            errors.ProfileStale, self.store, b"2", condition=Condition(frozenset({tag()}))
        )
        assert "If-None-Match: *" in str(gone)

    def test_a_profile_of_another_image_is_refused(self):
        self.make("w", "f" * 64)
        self.assertRaises(errors.ProfileForeign, self.store, image="w")
        assert self.profiles.index("w") == []

    def test_an_image_without_a_hash_tree_can_have_none(self):
        unbound = self.assertRaises(errors.ProfileUnbound, self.store, image="x")
        assert "has no hash tree, so nothing would bind a profile" in str(unbound)

    def test_one_image_has_profiles_of_so_many_workloads(self):
        for number in range(WORKLOADS):
            self.store(workload=f"w{number}")
        self.assertRaises(errors.TooManyProfiles, self.store)
        self.store(b"2", workload="w0")
        self.profiles.remove("v", "w1")
        assert self.store()[1]

    def test_a_removed_one_does_not_give_its_numbers_to_others(self):
        for content in (b"1", b"2"):
            self.store(content)
        self.store(workload="web")
        assert self.profiles.remove("v", "boot")
        assert not self.profiles.remove("v", "boot")
        self.assertRaises(errors.ProfileUnknown, self.profiles.show, "v", "boot")
        self.assertRaises(errors.ProfileUnknown, self.profiles.history, "v", "boot")
        assert [one.workload for one in self.profiles.index("v")] == ["web"]
        stored, is_new = self.store(b"1", condition=NEW)
        assert (stored.revision, is_new) == (3, True)

    def test_they_go_with_their_image(self):
        self.store()
        self.images.delete("v")
        self.assertRaises(errors.ImageUnknown, self.profiles.index, "v")
        self.make("v")
        assert self.profiles.index("v") == []
        assert self.store()[0].revision == 1


class TestPlacements(ProfilesCase):
    def told(self, host="a"):
        return self.placements.show("v", host).profiles

    def test_they_name_the_newest_of_each_workload(self):
        self.join("a", "b", image="v")
        assert self.told() == ()
        before = self.placements.show("v", "a").generation
        for content in (b"1", b"2"):
            self.store(content)
        self.store(workload="backup")
        named = (Profiled("backup", 1), Profiled("boot", 2))
        assert self.told() == named
        assert [place.profiles for place in self.placements.of_host("b")] == [named]
        self.profiles.remove("v", "backup")
        assert self.told() == (Profiled("boot", 2),)
        assert self.placements.show("v", "a").generation == before
        joined, _ = self.placements.join("v", "c", portal())
        assert joined.profiles == (Profiled("boot", 2),)
