"""Whose a portal is can be read off it, and Volt's word of one is read as it was written."""

import json

import testtools
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.virtman.model.test_naming import names
from virtman.errors import InvalidName
from virtman.model import address, naming
from virtman.model.address import Portal, Proof

portals = st.builds(
    Portal,
    st.sampled_from(["192.0.2.1", "2001:db8::1"]),
    st.integers(1, 65535),
    st.builds(address.iqn, names, names),
    st.integers(0, 255),
    st.integers(0, 1 << 60),
)
proofs = st.builds(Proof, st.text(), st.text())


class AddressTest(testtools.TestCase):
    @given(names, names)
    def test_a_target_name_can_be_taken_apart(self, host, image):
        iqn = address.iqn(host, image)
        self.assertEqual((host, image), address.parse_iqn(iqn))
        self.assertEqual(iqn, iqn.lower())

    def test_targets_of_others_are_not_ours(self):
        ours = "iqn.2026-11.org.virtman"
        wrong = ("", ":a", ":source:a:b:c", ":other:a:b", ":source::b", ":a:b_c")
        for iqn in ("iqn.2003-01.org.linux-iscsi:a:b", "x", *(ours + rest for rest in wrong)):
            self.assertIsNone(address.parse_iqn(iqn))
            self.assertEqual(("", ""), (Portal("", 1, iqn).host, Portal("", 1, iqn).image))

    @given(names, names, st.integers(0, 7))
    def test_all_disks_of_an_image_are_served_by_its_host(self, host, image, number):
        portal = address.served_by(host, image, "192.0.2.1", 3260, 4096).disk(number)
        self.assertEqual((host, image, number), (portal.host, portal.image, portal.lun))
        self.assertEqual(("192.0.2.1", 3260, 4096), (portal.ip, portal.port, portal.offset))
        self.assertEqual(portal.iqn, portal.name)

    @given(names, names, names)
    def test_a_source_and_a_host_never_have_one_target(self, host, other, image):
        source = address.source_at(host, image, "192.0.2.1", 3260)
        self.assertNotEqual(address.iqn(other, image), source.iqn)
        self.assertEqual((f"source:{host}", image), (source.host, source.image))
        self.assertRaises(InvalidName, naming.check, "host", source.host)
        self.assertEqual(source, address.source_at(host, image, "192.0.2.1", 3260))
        self.assertLessEqual(len(source.iqn), 223)  # RFC 3720

    @given(portals, st.one_of(st.none(), proofs))
    def test_what_is_written_is_read(self, portal, proof):
        written = json.loads(json.dumps(address.form(portal, proof)))
        self.assertEqual((portal, proof), address.parse(written))
        self.assertEqual({"portal", "chap"}, set(written))

    @given(proofs)
    def test_what_is_asked_of_children_is_read(self, proof):
        self.assertEqual(proof, address.parse_proof(address.proof_form(proof)))
        self.assertNotIn("secret=", repr(proof))

    def test_a_source_may_ask_for_nothing(self):
        portal = address.served_by("s", "i", "192.0.2.1", 3260)
        self.assertEqual({"source"}, set(address.source_form(portal, None)))
        told = address.source_form(portal, Proof("i", "secret"))
        self.assertEqual({"user": "i", "secret": "secret"}, told["source_chap"])
