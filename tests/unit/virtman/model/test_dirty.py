"""Which parts of a device are sent, and in what portions."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model.dirty import CHUNK, PORTION, amount, chunks, mark, numbers, portions, union

COUNTS = st.integers(1, 2000)
MAPS = COUNTS.flatmap(
    lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), max_size=400))
)


class PortionsTest(testtools.TestCase):
    @given(MAPS, st.integers(1, CHUNK // 512))
    def test_all_that_changed_is_sent_once_and_in_order(self, case, last):
        count, marked = case
        size = (count - 1) * CHUNK + last * 512
        self.assertEqual(count, chunks(size))
        found = []
        for portion in portions(mark(marked, count), size):
            self.assertLessEqual(portion.size, PORTION)
            for offset, length in portion.runs:
                self.assertLessEqual(offset + length, size)
                found += range(offset // CHUNK, chunks(offset + length))
            self.assertEqual(found[-1] + 1, portion.end)
        self.assertEqual(sorted(marked), found)

    @given(MAPS)
    def test_a_map_has_what_was_marked(self, case):
        count, marked = case
        found = mark(marked, count)
        self.assertEqual(-(-count // 8), len(found))
        self.assertEqual(sorted(marked), list(numbers(found)))

    @given(MAPS, COUNTS)
    def test_it_goes_on_from_any_chunk(self, case, begin):
        count, marked = case
        found = [
            at // CHUNK
            for portion in portions(mark(marked, count), count * CHUNK, begin)
            for offset, length in portion.runs
            for at in range(offset, offset + length, CHUNK)
        ]
        self.assertEqual([one for one in sorted(marked) if one >= begin], found)

    def test_neighbours_go_as_one_run(self):
        (portion,) = portions(mark({1, 2, 3, 9}, 16), 16 * CHUNK)
        self.assertEqual(((CHUNK, 3 * CHUNK), (9 * CHUNK, CHUNK)), portion.runs)

    @given(COUNTS, st.data())
    def test_a_union_has_what_is_in_any(self, count, data):
        sets = data.draw(st.lists(st.sets(st.integers(0, count - 1)), max_size=4))
        whole = union(mark(one, count) for one in sets)
        self.assertEqual(amount(whole), len(set().union(*sets)) * CHUNK)
        self.assertEqual(whole, mark(set().union(*sets), count) if sets else b"")

    def test_maps_from_before_a_disk_became_longer_are_shorter(self):
        short, long = mark({0, 7}, 8), mark({2, 30}, 31)
        for maps in ((short, long), (long, short)):
            self.assertEqual(mark({0, 2, 7, 30}, 31), union(maps))
