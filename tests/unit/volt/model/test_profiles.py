"""Which bytes Volt takes for a profile, and when one may follow another."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import ROOT_HASH, profile, tag
from volt import errors
from volt.model.profiles import HEAD, LARGEST, Condition, parse

GOOD = profile()


class TestHead(testtools.TestCase):
    def test_it_names_the_image_and_the_content(self):
        new = parse(GOOD)
        assert (new.root_hash, new.tag, new.content) == (ROOT_HASH, tag(), GOOD)

    def test_there_may_be_nothing_behind_it_or_a_mebibyte_with_it(self):
        for content in (b"", bytes(LARGEST - HEAD)):
            assert parse(profile(content)).tag == tag(content)

    def test_more_than_a_mebibyte_is_refused(self):
        self.refused("at most 1048576 bytes", profile(bytes(LARGEST - HEAD + 1)))

    def test_other_bytes_are_no_profile(self):
        for other in (b"", b"VMBP", GOOD[: HEAD - 1], b"vmbp" + GOOD[4:], bytes(100)):
            self.refused("no profile", other)

    def test_other_versions_are_not_known(self):
        for version in (0, 1, 3, 255):
            self.refused(f"version {version}", profile(version=version))

    @given(st.integers(37, len(GOOD) - 1), st.integers(1, 255))
    def test_every_damaged_byte_is_noticed(self, place, change):
        damaged = bytearray(GOOD)
        damaged[place] ^= change
        self.refused("checksum", bytes(damaged))

    def test_a_profile_that_was_cut_off_is_noticed(self):
        self.refused("checksum", GOOD[:-1])

    def refused(self, word, content):
        assert word in str(self.assertRaises(errors.ProfileInvalid, parse, content))


class TestCondition(testtools.TestCase):
    """``a`` is there, ``b`` is to be stored."""

    def holds(self, present, **condition):
        return Condition(**{name: frozenset(tags) for name, tags in condition.items()}).holds(
            present, "b"
        )

    def test_without_one_everything_may_be_stored(self):
        assert self.holds("a")
        assert self.holds(None)

    def test_a_match_names_what_must_be_there(self):
        assert self.holds("a", match="a")
        assert self.holds("a", match="ca")
        assert self.holds("a", match="*")
        assert not self.holds("a", match="c")
        assert not self.holds("a", match="")
        assert not self.holds(None, match="a")
        assert not self.holds(None, match="*")

    def test_who_asks_again_finds_that_it_is_done(self):
        assert self.holds("b", match="a")

    def test_no_match_names_what_must_not_be_there(self):
        assert self.holds(None, none_match="*")
        assert self.holds("a", none_match="c")
        assert not self.holds("a", none_match="*")
        assert not self.holds("a", none_match="a")
        assert not self.holds("a", match="a", none_match="*")
