"""Which names Volt takes."""

import string

import testtools
from hypothesis import given
from hypothesis import strategies as st

from volt import errors
from volt.model.names import check_name

ENDS = string.ascii_lowercase + string.digits


class TestNames(testtools.TestCase):
    @given(st.text(ENDS + ".-", max_size=46))
    def test_lower_case_letters_digits_dots_and_dashes_are_taken(self, middle):
        assert check_name("host", f"a{middle}0") == f"a{middle}0"

    @given(st.text(max_size=60))
    def test_a_taken_name_has_nothing_that_an_iscsi_name_forbids(self, name):
        try:
            check_name("host", name)
        except errors.NameInvalid:
            return
        assert 1 <= len(name) <= 48
        assert set(name) <= set(ENDS + ".-")
        assert name[0] in ENDS
        assert name[-1] in ENDS

    def test_the_refusal_states_the_rule(self):
        for name in ("", "a/b", "a b", "Node1", "a_b", ".a", "a-", "a" * 49, "a\n", "ä"):
            refusal = self.assertRaises(errors.NameInvalid, check_name, "image", name)
            assert "1 to 48 lower-case letters" in str(refusal)
