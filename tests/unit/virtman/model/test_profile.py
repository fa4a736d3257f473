"""A profile has what boots read, survives its bytes, and nothing broken passes for one."""

import random
import zlib
from dataclasses import replace
from hashlib import sha256

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.errors import ProfileForeign, ProfileInvalid
from virtman.model.profile import LATEST, PIECES, Band, Group, Profile, bands, carried, merged, rows
from virtman.model.profile_format import decode, encode

ROOT = "0f" * 32
OTHER = "e1" * 32
KIB = 1024

RUNS = st.lists(
    st.dictionaries(st.integers(0, 300), st.floats(0, 90, width=32), max_size=30), max_size=4
)


def profile_of(runs, *settings):
    profile = Profile(ROOT, 64 * KIB, 0, 1000, ())
    for run in runs:
        profile = merged(profile, run, ROOT, *settings)
    return profile


def signed(body, root=ROOT, version=2):
    """Return bytes with a right checksum; the body may be anything."""
    return sealed(zlib.compress(body), root, version)


def sealed(packed, root=ROOT, version=2):
    head = b"VMBP" + bytes([version]) + bytes.fromhex(root)
    return head + sha256(packed).digest() + packed


def leb(*numbers):
    """Return numbers as LEB128, written another way than the code does."""
    found = b""
    for number in numbers:
        digits = [number >> shift & 127 for shift in range(0, 70, 7)]
        while len(digits) > 1 and not digits[-1]:
            digits.pop()
        found += bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])
    return found


def body_of(*numbers):
    return bytes.fromhex(ROOT) + leb(*numbers)


PROFILE = Profile(
    ROOT,
    64 * KIB,
    3,
    1000,
    (
        Group(0, 3, (0, 1, 300)),
        Group(0, 1, (7,)),
        Group(2, 2, (5, 200)),
    ),
    ({0: 0, 1: 1, 300: 0, 5: 1}, {0: 3, 1: 0, 300: 0, 7: 0, 200: 2}),
)
GROUPS = (65536, 3, 1000, 3, 0, 3, 3, 0, 1, 299, 0, 1, 1, 7, 2, 2, 2, 5, 195)
BODY = body_of(*GROUPS, 2, 1, 3, 1, 0, 2, 0, 7, 1, 1, 1, 0, 1)


class ProfileTest(testtools.TestCase):
    def test_all_that_is_absurd_is_refused(self):
        for wrong in (
            {"identity": ROOT[2:]},
            {"identity": ROOT + "00"},
            {"identity": ROOT.upper()},
            {"piece_size": 2 * KIB},
            {"piece_size": 2048 * KIB},
            {"piece_size": 96 * KIB},
            {"runs": 2**32},
            {"runs": -1, "groups": (), "latest": ()},
            {"band_ms": 0},
            {"band_ms": 2**32},
            {"runs": 2},
            {"groups": (Group(0, 0, (1,)),)},
            {"groups": (Group(-1, 1, (1,)),)},
            {"groups": (Group(2**32, 1, (1,)),)},
            {"groups": (Group(0, 1, ()),)},
            {"groups": (Group(0, 1, (-1, 1)),)},
            {"groups": (Group(0, 1, (2**32,)),)},
            {"groups": (Group(0, 1, (2, 1)),)},
            {"groups": (Group(0, 1, (2, 2)),)},
            {"groups": (Group(1, 1, (1,)), Group(0, 1, (2,)))},
            {"groups": (Group(0, 1, (1,)), Group(0, 2, (2,)))},
            {"groups": (Group(0, 1, (1,)), Group(0, 1, (2,)))},
            {"groups": (Group(0, 1, (1, 2)), Group(1, 1, (2,)))},
            {"latest": ({0: 0},) * 4},
            {"runs": 17, "latest": ({0: 0},) * 17},
            {"latest": ({2: 0},)},
            {"latest": ({0: -1},)},
            {"latest": ({0: 2**32},)},
        ):
            self.assertRaises(ProfileInvalid, replace, PROFILE, **wrong)

    def test_what_is_just_possible_is_taken(self):
        for right in (
            {"piece_size": 4 * KIB},
            {"piece_size": 1024 * KIB},
            {"runs": 2**32 - 1},
            {"runs": 0, "groups": (), "latest": ()},
            {"runs": 16, "latest": ({0: 0}, {}) * 8},
            {"latest": ({0: 2**32 - 1, 5: 0},)},
            {"band_ms": 1},
            {"band_ms": 2**32 - 1},
            {"groups": (Group(2**32 - 1, 1, (2**32 - 1,)),), "latest": ({2**32 - 1: 0},)},
        ):
            profile = replace(PROFILE, **right)
            self.assertEqual(profile, decode(encode(profile)))

    def test_errors_have_their_codes(self):
        self.assertEqual("virtman.profile.invalid", ProfileInvalid.code)
        self.assertEqual("virtman.profile.foreign", ProfileForeign.code)

    def test_wanted_are_those_of_half_the_runs_by_band_then_position(self):
        groups = (Group(0, 4, (8,)), Group(0, 2, (3, 9)), Group(0, 1, (1,)), Group(1, 3, (2,)))
        self.assertEqual((3, 8, 9, 2), Profile(ROOT, 4096, 4, 1000, groups).wanted())
        self.assertEqual((8, 2), Profile(ROOT, 4096, 5, 1000, groups).wanted())

    def test_bands_are_for_programs(self):
        self.assertEqual(
            [Band(0.0, 4, 4 * 65536, 10 / 12), Band(2.0, 2, 2 * 65536, 2 / 3)], bands(PROFILE)
        )
        self.assertEqual([], bands(replace(PROFILE, groups=(), latest=())))

    def test_latest_runs_have_the_middle_of_bands(self):
        self.assertEqual(
            [{0: 0.5, 1: 1.5, 300: 0.5, 5: 1.5}, {0: 3.5, 1: 0.5, 300: 0.5, 7: 0.5, 200: 2.5}],
            PROFILE.timed(),
        )
        self.assertEqual(0.75, merged(None, {6: 0.75}, ROOT, 4096, 500).timed()[0][6])

    def test_rows_are_for_people(self):
        self.assertEqual(
            [("0", "4", "0.2", "83%"), ("2", "2", "0.1", "67%")],
            rows(PROFILE),
        )
        many = Profile(ROOT, 1024 * KIB, 4, 250, (Group(3, 3, tuple(range(12))),))
        self.assertEqual([("0.75", "12", "12.0", "75%")], rows(many))
        self.assertEqual([], rows(replace(PROFILE, groups=(), latest=())))


class MergeTest(testtools.TestCase):
    def test_a_first_run_is_a_profile(self):
        self.assertEqual(
            Profile(
                ROOT,
                65536,
                1,
                1000,
                (Group(0, 1, (4, 9)), Group(1, 1, (2,))),
                ({9: 0, 2: 1, 4: 0},),
            ),
            merged(None, {9: 0.0, 2: 1.0, 4: 0.999}, ROOT),
        )

    def test_piece_size_and_bands_can_be_set(self):
        self.assertEqual(
            Profile(ROOT, 4096, 1, 250, (Group(0, 1, (5,)), Group(3, 1, (6,))), ({5: 0, 6: 3},)),
            merged(None, {5: 0.2, 6: 0.75}, ROOT, 4096, 250),
        )

    def test_a_profile_keeps_its_bands(self):
        profile = merged(None, {5: 0.2}, ROOT, 65536, 250)
        self.assertEqual(
            Profile(ROOT, 65536, 2, 250, (Group(0, 1, (5,)), Group(4, 1, (6,))), ({5: 0}, {6: 4})),
            merged(profile, {6: 1.0}, ROOT, 65536, 1000),
        )

    def test_a_band_stands_for_its_middle(self):
        # (2 * 0.5 s + 5 s) / 3 = 2 s, and just less
        two = Profile(ROOT, 65536, 2, 1000, (Group(0, 2, (1,)),))
        self.assertEqual((Group(2, 3, (1,)),), merged(two, {1: 5.0}, ROOT).groups)
        self.assertEqual((Group(1, 3, (1,)),), merged(two, {1: 4.9}, ROOT).groups)
        late = Profile(ROOT, 65536, 3, 500, (Group(10, 3, (1,)),))
        self.assertEqual((Group(7, 4, (1,)),), merged(late, {1: 0.0}, ROOT).groups)

    def test_pieces_of_one_band_are_kept_with_their_share(self):
        profile = profile_of([{1: 0, 2: 0, 3: 0}, {2: 0, 9: 0}, {2: 0, 1: 0}])
        self.assertEqual(3, profile.runs)
        self.assertEqual(
            (Group(0, 3, (2,)), Group(0, 2, (1,)), Group(0, 1, (3, 9))), profile.groups
        )

    def test_the_latest_runs_are_kept_as_they_were(self):
        runs = [{1: number, 100 + number: 3.7} for number in range(LATEST + 2)]
        found = profile_of(runs)
        self.assertEqual((18, 16), (found.runs, len(found.latest)))
        self.assertEqual({1: 2, 102: 3}, found.latest[0])
        self.assertEqual({1: 17, 117: 3}, found.latest[-1])
        self.assertEqual(19, found.total)

    def test_of_large_runs_fewer_are_kept(self):
        large = dict.fromkeys(range(100_000), 0.0)
        found = profile_of([{1: 0.0}] * 9 + [large])
        self.assertEqual((10, 5), (found.runs, len(found.latest)))
        self.assertEqual([1, 1, 1, 1, 100_000], [len(one) for one in found.latest])

    def test_a_profile_of_another_image_is_refused(self):
        error = self.assertRaises(ProfileForeign, merged, PROFILE, {}, OTHER)
        self.assertIn(ROOT, str(error))
        self.assertIn(OTHER, str(error))
        self.assertRaises(ProfileForeign, merged, PROFILE, {}, "00" * 32)

    def test_pieces_of_another_size_are_refused(self):
        error = self.assertRaises(ProfileForeign, merged, PROFILE, {}, ROOT, 4096)
        self.assertIn("65536", str(error))
        self.assertIn("4096", str(error))
        self.assertRaises(ProfileForeign, merged, PROFILE, {}, ROOT, 1024 * KIB)

    def test_what_is_too_much_is_left_out(self):
        self.assertEqual(16 * 1024**3, PIECES * 64 * KIB)
        run = dict.fromkeys(range(1, PIECES), 0.0)
        profile = merged(None, run | {3: 9.0}, ROOT)
        profile = merged(profile, {5: 0, 6: 9, PIECES: 0, PIECES + 1: 0, PIECES + 2: 0}, ROOT)
        often, rest, late = profile.groups
        self.assertEqual((Group(0, 2, (5,)), Group(4, 2, (6,))), (often, late))
        self.assertEqual((1, 2, 4, *range(7, PIECES + 2)), rest.pieces)
        first, second = profile.latest
        self.assertEqual(set(range(1, PIECES)) - {3}, set(first))
        self.assertEqual({5: 0, 6: 9, PIECES: 0, PIECES + 1: 0}, second)

    @given(RUNS)
    def test_every_piece_has_its_count(self, runs):
        profile = profile_of(runs)
        counts = {one: group.count for group in profile.groups for one in group.pieces}
        expected = {one: sum(one in run for run in runs) for run in runs for one in run}
        self.assertEqual(expected, counts)
        common = {one for one, count in counts.items() if count >= len(runs) / 2}
        self.assertEqual(common, set(profile.wanted()))


class BytesTest(testtools.TestCase):
    def test_the_layout_is_as_described(self):
        data = encode(PROFILE)
        self.assertEqual(b"VMBP\2" + bytes.fromhex(ROOT), data[:37])
        self.assertEqual(sha256(data[69:]).digest(), data[37:69])
        self.assertEqual(BODY, zlib.decompress(data[69:]))
        self.assertEqual(PROFILE, decode(signed(BODY)))

    @given(RUNS)
    def test_it_is_the_same_after_its_bytes(self, runs):
        profile = profile_of(runs)
        self.assertEqual(profile, decode(encode(profile)))

    def test_all_of_15_gb_fits_in_512_kb(self):
        dice = random.Random(15)
        found = {}
        for piece in range(15 * 1024**3 // 65536):
            found.setdefault((dice.randrange(120), -dice.randrange(1, 5)), []).append(piece)
        groups = (Group(band, -count, tuple(those)) for (band, count), those in found.items())
        groups = sorted(groups, key=lambda one: (one.band, -one.count))
        # one of ten pieces is read some seconds earlier or later than in other runs
        latest = tuple(
            {
                piece: max(0, one.band + dice.choice((-2, -1, 1, 2) + (0,) * 36))
                for one in groups
                for piece in one.pieces
            }
            for _ in range(2)
        )
        profile = Profile(ROOT, 65536, 4, 1000, tuple(groups), latest)
        data = encode(profile)
        self.assertLess(len(data), 512_000)
        self.assertEqual(profile, decode(data))

    def test_each_piece_in_a_group_of_its_own_fits(self):
        top = 2**32 - 1
        groups = (Group(top - 9 + one, top, (top - one,)) for one in range(10))
        profile = Profile(ROOT, 65536, top, top, tuple(groups))
        self.assertEqual(profile, decode(encode(profile)))

    @given(st.integers(0, len(encode(PROFILE)) - 1), st.integers(1, 255))
    def test_any_changed_byte_is_noticed(self, place, change):
        data = bytearray(encode(PROFILE))
        data[place] ^= change
        self.assertRaises(ProfileInvalid, decode, bytes(data))

    def test_it_can_be_cut_nowhere(self):
        data = encode(PROFILE)
        for length in range(len(data)):
            self.assertRaises(ProfileInvalid, decode, data[:length])
        self.assertRaises(ProfileInvalid, decode, data + b"\0")

    def test_a_body_can_be_cut_nowhere(self):
        for length in range(len(BODY)):
            self.assertRaises(ProfileInvalid, decode, signed(BODY[:length]))
        self.assertRaises(ProfileInvalid, decode, signed(BODY + b"\0"))

    @given(st.binary(max_size=80))
    def test_random_bytes_are_no_profile(self, data):
        self.assertRaises(ProfileInvalid, decode, data)
        self.assertRaises(ProfileInvalid, decode, b"VMBP\2" + data)
        self.assertRaises(ProfileInvalid, decode, sealed(data))

    @given(st.binary(max_size=40))
    def test_random_bodies_raise_nothing_else(self, data):
        for body in (data, bytes.fromhex(ROOT) + data, body_of(65536, 9, 1000) + data):
            try:
                profile = decode(signed(body))
            except ProfileInvalid:
                continue
            self.assertEqual(profile, decode(encode(profile)))

    def test_another_version_is_named(self):
        error = self.assertRaises(ProfileInvalid, decode, signed(BODY, version=1))
        self.assertIn("version is 1, not 2", str(error))

    def test_both_identities_must_be_the_same(self):
        self.assertRaises(ProfileInvalid, decode, signed(BODY, OTHER))

    def test_data_behind_the_body_are_refused(self):
        self.assertRaises(ProfileInvalid, decode, sealed(zlib.compress(BODY) + b"more"))

    def test_bombs_do_not_go_off(self):
        one = leb(0, 1, 1, 1)
        self.assertRaises(ProfileInvalid, decode, signed(BODY + bytes(16 * PIECES)))
        self.assertRaises(ProfileInvalid, decode, signed(body_of(65536, 3, 1000, 2**32) + one))
        self.assertRaises(
            ProfileInvalid, decode, signed(body_of(65536, 3, 1000, 1, 0, 1, 2**34, 1))
        )
        self.assertRaises(ProfileInvalid, decode, signed(body_of(65536, 2**32 - 1, 1000, 0, 2**34)))

    def test_numbers_are_no_longer_than_5_bytes(self):
        head = body_of(65536, 3, 1000, 1, 0, 1, 1)
        self.assertEqual((1,), decode(signed(head + b"\x81\x80\x80\x80\0\0")).groups[0].pieces)
        self.assertRaises(ProfileInvalid, decode, signed(head + b"\x81\x80\x80\x80\x80\0\0"))

    def test_more_pieces_than_allowed_are_refused(self):
        most = Profile(ROOT, 65536, 1, 1000, (Group(0, 1, tuple(range(PIECES))),))
        self.assertEqual(most, decode(encode(most)))
        more = body_of(65536, 1, 1000, 1, 0, 1, PIECES + 1, 0) + b"\1" * PIECES + b"\0"
        self.assertRaises(ProfileInvalid, decode, signed(more))


def leaves_of(*blocks):
    """Return the leaves of an image of these blocks, as in a file: padded to 4 KiB."""
    digests = b"".join(sha256(bytes([block])).digest() for block in blocks)
    return digests + bytes(-len(digests) % 4096)


class CarryTest(testtools.TestCase):
    def carried(self, old, new, *pieces, piece_size=8192):
        profile = Profile(ROOT, piece_size, 1, 1000, (Group(0, 1, pieces),))
        found = carried(profile, memoryview(old), memoryview(new), OTHER)
        self.assertEqual(found, carried(profile, old, new, OTHER))
        self.assertEqual((OTHER, piece_size, 1), (found.identity, found.piece_size, found.runs))
        return found.groups[0].pieces if found.groups else ()

    def test_only_pieces_that_are_the_same_stay(self):
        old, new = leaves_of(*range(10)), leaves_of(0, 1, 2, 99, 4, 5, 98, 7, 8, 9)
        self.assertEqual((0, 2, 4), self.carried(old, new, 0, 1, 2, 3, 4))

    def test_a_piece_of_64_kib_has_16_blocks(self):
        old = leaves_of(*range(64))
        new = leaves_of(*range(31), 99, *range(32, 64))
        self.assertEqual((0, 2, 3), self.carried(old, new, 0, 1, 2, 3, piece_size=65536))

    def test_pieces_that_moved_do_not_stay(self):
        self.assertEqual((), self.carried(leaves_of(0, 1, 2, 3), leaves_of(2, 3, 0, 1), 0, 1))

    def test_a_longer_image_loses_the_short_piece(self):
        old, new = leaves_of(0, 1, 2), leaves_of(0, 1, 2, 3)
        self.assertEqual((0,), self.carried(old, new, 0, 1))
        self.assertEqual((0,), self.carried(new, old, 0, 1))
        self.assertEqual((0, 1), self.carried(old, old, 0, 1))
        self.assertEqual((0, 1), self.carried(old[:96], old[:96], 0, 1))

    def test_there_are_no_pieces_behind_the_end(self):
        leaves = leaves_of(0, 1, 2, 3)
        self.assertEqual((1,), self.carried(leaves, leaves, 1, 2, 3, 63, 64, 1000))

    def test_groups_keep_band_and_count(self):
        old, new = bytearray(leaves_of(*range(201))), bytearray(leaves_of(*range(201)))
        for piece in (0, 7, 200):
            new[32 * piece] ^= 1
        profile = replace(PROFILE, piece_size=4096)
        self.assertEqual(
            replace(
                profile,
                identity=OTHER,
                groups=(Group(0, 3, (1,)), Group(2, 2, (5,))),
                latest=({1: 1, 5: 1}, {1: 0}),
            ),
            carried(profile, bytes(old), bytes(new), OTHER),
        )
