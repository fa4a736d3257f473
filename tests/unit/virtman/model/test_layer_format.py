"""How the bytes of a layer lie: as dm-snapshot reads them."""

import struct
from dataclasses import replace

import testtools
from hypothesis import given, settings
from hypothesis import strategies as st

from virtman.model import hashtree, layer_format, suspended
from virtman.model.dirty import CHUNK
from virtman.model.layer_format import AREA, DESCRIPTION, LONGEST, Description
from virtman.model.suspended import MOST_STATE, Device, Hardware, Suspended

HARDWARE = Hardware(
    "10.0", "tcg", "pc-i440fx-10.0", "qemu64", "ab" * 32, 1, 1, 1, 1 << 30, "pc.ram",
    canonical=False, serials=1, devices=(Device("virtio-blk-pci", "02.0"),),
)  # fmt: skip
DESCRIBED = Description("debian", "ab" * 32, 8 << 20)
COUNTS = st.integers(0, 2 * AREA + 2) | st.sampled_from([0, AREA - 1, AREA, AREA + 1, 2 * AREA])
CONTENT = [bytes([number]) * CHUNK for number in range(1, 8)]
FEW = settings(max_examples=20)  # each is of thousands of chunks


def exceptions(areas):
    """What the kernel finds: it takes area after area until an entry is empty."""
    found, area = {}, 0
    while True:
        content = areas[1 + area * (AREA + 1)]
        for number, place in struct.iter_unpack("<QQ", content):
            if not place:
                return found
            found[number] = place
        area += 1


def written(numbers):
    """Return a layer's pieces by their chunk in it; what chunks of the disk have goes round."""
    content = (CONTENT[index % len(CONTENT)] for index in range(len(numbers)))
    *pieces, zeros = layer_format.pieces(DESCRIBED, numbers, content)
    return dict(enumerate(pieces)), zeros


def describe(content):
    """What a layer says of itself that begins so."""
    return layer_format.describe(lambda at, size: content[at : at + size])


class LayerFormatTest(testtools.TestCase):
    @FEW
    @given(COUNTS)
    def test_the_kernel_finds_the_data_of_each_chunk(self, count):
        numbers = [3 * number + 1 for number in range(count)]
        layer, _ = written(numbers)
        found = exceptions(layer)
        self.assertEqual(numbers, list(found))
        self.assertEqual(
            [CONTENT[index % len(CONTENT)] for index in range(count)],
            [layer[place] for place in found.values()],
        )
        self.assertEqual(
            [layer_format.place(index) for index in range(count)], list(found.values())
        )
        self.assertEqual(count, len(set(found.values())))

    @FEW
    @given(COUNTS)
    def test_a_layer_has_room_for_a_hash_tree_and_for_no_more(self, count):
        layer, zeros = written(range(count))
        length = layer_format.length(count)
        self.assertEqual(length, len(layer) * CHUNK + len(zeros))
        self.assertEqual(0, length % CHUNK)
        self.assertEqual({CHUNK}, set(map(len, layer.values())))
        self.assertFalse(any(zeros))
        self.assertTrue(hashtree.has_tree(length))
        self.assertLessEqual(length, max(1 << 20, len(layer) * CHUNK))

    @FEW
    @given(COUNTS)
    def test_a_layer_tells_what_it_holds(self, count):
        expected = [3 * number + 1 for number in range(count)]
        layer, _ = written(expected)
        found = layer_format.numbers(lambda start, length: layer[start // CHUNK][:length])
        self.assertEqual(expected, list(found))

    def test_the_end_of_a_disk_is_followed_by_zeros(self):
        *_, last, _ = layer_format.pieces(DESCRIBED, [7], [b"end"])
        self.assertEqual(b"end".ljust(CHUNK, b"\0"), last)

    def test_the_header_is_the_kernels_and_says_what_the_layer_is_of(self):
        header = layer_format.header(DESCRIBED)
        self.assertEqual(CHUNK, len(header))
        self.assertEqual((b"SnAp", 1, 1, 128), struct.unpack_from("<4sIII", header))
        self.assertEqual(DESCRIBED, describe(header))

    def test_a_suspended_image_says_how_a_vm_goes_on_whatever_it_consists_of(self):
        devices = (Device("virtio-blk-pci", "1f.7", "s" * 20), *[Device("VGA", "1f.7")] * 31)
        hardware = replace(HARDWARE, cpu="c" * 64, block="b" * 64, devices=devices)
        saved = Suspended(suspended.place(7), MOST_STATE, "ab" * 32, hardware)
        described = replace(DESCRIBED, parent="n" * 48, suspended=saved)
        header = layer_format.header(described)
        self.assertEqual(CHUNK, len(header))
        self.assertEqual(described, describe(header))
        self.assertIsNone(describe(header.replace(b"VGA", b"VGB", 1)))
        self.assertNotIn(b"suspended", layer_format.header(DESCRIBED))

    def test_what_is_no_layer_is_taken_for_none(self):
        for text in (
            b"", bytes(LONGEST), b"\xff" * LONGEST, b"[1]", b"{}", b'{"format": "other"}',
            b'{"format": "virtman layer 1", "parent": "x"}',
        ):  # fmt: skip
            self.assertIsNone(describe(bytes(DESCRIPTION) + text), text)
