"""What the file of a layer says of itself, and what is none."""

import json

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.errors import LayerFileInvalid
from virtman.model import layer_file
from virtman.model.layer_file import LONGEST, Label

LABEL = Label("web", "ab" * 32, 1 << 20, "debian", "cd" * 32, 8 << 20)
LINE = layer_file.line(LABEL)


class LayerFileTest(testtools.TestCase):
    def test_a_label_says_what_it_was_told(self):
        self.assertEqual(LABEL, layer_file.understand(LINE))
        self.assertEqual(b"\n", LINE[-1:])
        self.assertEqual(1, LINE.count(b"\n"))

    def test_it_fits_its_line_with_the_longest_names(self):
        name, root = "n" * 48, "f" * 64
        longest = layer_file.line(Label(name, root, 1 << 62, name, root, 1 << 62))
        self.assertLess(len(longest), LONGEST)

    def test_another_version_is_told_from_what_is_no_layer(self):
        said = json.loads(LINE)
        refused = self.refused(said | {"format": "virtman layer file 2"})
        self.assertIn("virtman layer file 2", refused)
        for changed in (
            {"length": "1"}, {"length": 4096}, {"length": 0}, {"length": -1}, {"length": True},
            {"parent": None}, {"more": 1}, {"disk_size": 1.5},
        ):  # fmt: skip
            self.assertIn("is none", self.refused(said | changed), changed)
        for key in said:
            self.assertIn("is none", self.refused({k: v for k, v in said.items() if k != key}))

    def refused(self, said):
        text = json.dumps(said).encode()
        return str(self.assertRaises(LayerFileInvalid, layer_file.understand, text))

    @given(st.binary(max_size=64) | st.builds(lambda end: LINE[:end], st.integers(0, 200)))
    def test_anything_else_is_refused(self, text):
        self.assertRaises(LayerFileInvalid, layer_file.understand, text)
