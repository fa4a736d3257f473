"""What bodies Volt takes and what it makes of them."""

import json

import testtools

from volt import errors
from volt.api import parsing
from volt.model.hosts import ImageReport, Listener
from volt.model.images import NewImage
from volt.model.placements import State
from volt.placement.rules import Shape
from volt.transport import Portal

PORTAL = {"ip": "192.0.2.1", "port": 3260, "iqn": "iqn.2003-01.org.example:a", "lun": 0}


def body(**content):
    return json.dumps(content).encode()


def image(**changes):
    return body(**({"name": "x", "size": 512, "source": PORTAL} | changes))


class TestImage(testtools.TestCase):
    def test_two_stripes_and_fan_out_two_are_the_default(self):
        source = Portal("192.0.2.1", 3260, "iqn.2003-01.org.example:a", 0, 0)
        assert parsing.image(image()) == NewImage("x", 512, Shape.FOREST, 2, 2, source)

    def test_each_shape_has_its_own_stripes_and_fan_out(self):
        for shape, stripes, fanout in (("tree", 1, 2), ("star", 1, 0), ("chain", 1, 1)):
            new = parsing.image(image(shape=shape))
            assert (new.stripes, new.fanout) == (stripes, fanout)
        self.assertRaises(errors.ShapeInvalid, parsing.image, image(shape="star", fanout=3))
        self.assertRaises(errors.RequestInvalid, parsing.image, image(shape="bush"))

    def test_sizes_other_than_whole_sectors_are_refused(self):
        for size in (0, -512, 511, 512.0, "512", True, None, 2**61):
            self.assertRaises(errors.ImageSizeInvalid, parsing.image, image(size=size))

    def test_a_fan_out_below_the_stripes_is_refused(self):
        self.assertRaises(errors.ShapeInvalid, parsing.image, image(stripes=3, fanout=2))

    def test_names_are_checked(self):
        self.assertRaises(errors.NameInvalid, parsing.image, image(name="A/b"))


class TestPortal(testtools.TestCase):
    def test_wrong_portals_are_refused(self):
        wrong = {
            "ip": ["host.example", "300.1.1.1", "", 7],
            "port": [0, 65536, "3260", 1.5],
            "iqn": ["", "target", "iqn.2003-01.org.x:a b", "iqn.2003-01.org.x:a\n"],
            "lun": [-1, 65536, "0"],
            "offset": [-512, 511, "0", 2**61],
            "more": [1],
        }
        for field, values in wrong.items():
            for value in values:
                joining = body(portal=PORTAL | {field: value})
                self.assertRaises(errors.RequestInvalid, parsing.join, joining)

    def test_a_missing_field_is_refused(self):
        for field in PORTAL:
            less = {name: value for name, value in PORTAL.items() if name != field}
            self.assertRaises(errors.RequestInvalid, parsing.join, body(portal=less))

    def test_addresses_of_version_six_are_taken_in_their_short_form(self):
        portal, _ = parsing.join(body(portal=PORTAL | {"ip": "2001:0db8::0001", "offset": 1024}))
        assert (portal.ip, portal.offset) == ("2001:db8::1", 1024)


class TestBodies(testtools.TestCase):
    def test_what_is_not_json_is_refused(self):
        for raw in (b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000, b"[]", b"null"):
            self.assertRaises(errors.RequestInvalid, parsing.heartbeat, raw)

    def test_ready_needs_the_generation_and_leaving_does_not(self):
        self.assertRaises(errors.RequestInvalid, parsing.state, body(state="ready"))
        assert parsing.state(body(state="leaving")) == parsing.StateChange(
            State.LEAVING, None, None
        )
        assert parsing.state(body(state="ready", generation=3)).generation == 3
        partly = body(state="ready", generation=3, stripes=[0, 2])
        assert parsing.state(partly) == parsing.StateChange(State.READY, 3, [0, 2])
        for stripes in ([-1], [60], ["a"], [1, 1], 3):
            wrong = body(state="ready", generation=3, stripes=stripes)
            self.assertRaises(errors.RequestInvalid, parsing.state, wrong)
        self.assertRaises(errors.RequestInvalid, parsing.state, body(state="joining"))

    def test_a_heartbeat_takes_ten_thousand_images_and_no_more(self):
        images = {f"i{number}": {"generation": number} for number in range(10_000)}
        assert parsing.heartbeat(body(images=images)).images["i7"] == ImageReport(7)
        more = images | {"one-more": {"generation": 1}}
        self.assertRaises(errors.RequestInvalid, parsing.heartbeat, body(images=more))


class TestMessages(testtools.TestCase):
    def refused(self, check, content):
        return str(self.assertRaises(errors.RequestInvalid, check, content))

    def test_all_that_may_be_is_listed(self):
        text = self.refused(parsing.image, image(shape="bush"))
        assert text == "shape: it is not one of forest, tree, star, chain, ring"
        text = self.refused(parsing.state, body(state="joining"))
        assert text == "state: 'joining' is not one of ready, leaving"

    def test_a_secret_is_not_shown_but_its_rule_is(self):
        for chap in ({"user": "a", "secret": "sesame"}, "sesame", {"user": "a", "sesame": 1}):
            text = self.refused(parsing.image, image(source_chap=chap))
            assert text.startswith("source_chap")
            assert '"sesame"' not in text
        assert "{12,255}" in self.refused(
            parsing.image, image(source_chap={"user": "a", "secret": "sesame"})
        )

    def test_a_secret_in_the_wrong_place_is_not_shown_either(self):
        chap = {"source_chap": {"secret": "sesame"}}
        for content in (
            json.dumps([chap]).encode(),
            b'"sesame"',
            image(source=[chap]),
            image(source="sesame"),
            image(shape=["sesame"]),
            image(stripes=chap),
        ):
            assert "sesame" not in self.refused(parsing.image, content)
        for size in ("sesame", ["sesame"]):
            error = self.assertRaises(errors.ImageSizeInvalid, parsing.image, image(size=size))
            assert "sesame" not in str(error)

    def test_a_long_value_leaves_room_for_the_rule(self):
        text = self.refused(parsing.join, body(portal=PORTAL | {"ip": "x" * 900}))
        assert text.endswith("is longer than 45 characters")
        assert len(text) < 400

    def test_what_json_allows_and_no_text_can_hold_is_refused(self):
        deep = b'{"images":' * 500 + b"{}" + b"}" * 500
        for content in (b'{"images": {"\\ud800": {"generation": 1}}}', deep):
            assert "cannot be read" in self.refused(parsing.heartbeat, content)


class TestCertificate(testtools.TestCase):
    def test_what_is_no_pem_of_a_request_is_refused(self):
        begin, end = (f"-----{word} CERTIFICATE REQUEST-----\n" for word in ("BEGIN", "END"))
        asked = {"ip": "192.0.2.1", "port": 1}
        for wrong in ("", "AAAA", begin, begin + end, begin + "?\n" + end):
            self.assertRaises(
                errors.RequestInvalid, parsing.certificate, "a", body(request=wrong, **asked)
            )
        pem = f"{begin}AAA=\n{end}"
        for right in (pem, "Subject: CN=a\n" + pem, pem.replace("CERT", "NEW CERT")):
            given = parsing.certificate("a", body(request=right, **asked))
            assert given == (right, Listener("a", "192.0.2.1", 1))
            assert parsing.certificate("a", body(request=right)) == (right, None)
