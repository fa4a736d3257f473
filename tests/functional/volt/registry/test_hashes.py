"""Hash trees of images, and hosts that are said to send wrong bytes."""

from base64 import b64encode

from tests.functional.volt.base import TestCase
from tests.functional.volt.registry.test_hosts import HostsCase
from volt import errors
from volt.model.hosts import Reason, Verdict
from volt.registry import reports

MIB = 1024 * 1024
HASH = "0123456789abcdef" * 4
UPPER = bytes(range(256)) * 16


class TestHashTrees(TestCase):
    def create(self, size=MIB, upper=UPPER, **more):
        source = {"ip": "127.0.0.1", "port": self.ground.source_port, "iqn": "iqn.2003-01.org.a:s",
                  "lun": 0}  # fmt: skip
        hashes = {"root_hash": HASH, "salt": HASH, "upper_hashes": b64encode(upper).decode()}
        body = {"name": "x", "size": size, "source": source} | hashes | more
        body = {name: value for name, value in body.items() if value is not None}
        return self.ground.client().post("/v1/images", json=body)

    def get(self, path):
        return self.ground.client().get(path)

    def test_a_tree_is_shown_with_the_image_and_its_upper_levels_by_themselves(self):
        for status in (201, 200):
            answer = self.create()
            assert answer.status_code == status, answer.text
        for shown in (answer.json, self.get("/v1/images/x").json):
            assert (shown["root_hash"], shown["salt"]) == (HASH, HASH)
            assert "upper_hashes" not in shown
        answer = self.get("/v1/images/x/hashes")
        assert (answer.data, answer.mimetype) == (UPPER, "application/octet-stream")

    def test_another_root_is_other_content(self):
        self.create()
        answer = self.create(root_hash="f" * 64)
        assert answer.json["error"]["code"] == "volt.image.exists"
        assert "exists with another root hash: delete it" in answer.json["error"]["message"]

    def test_an_image_needs_no_tree(self):
        assert self.create(root_hash=None, salt=None, upper_hashes=None).status_code == 201
        assert self.get("/v1/images/x").json["root_hash"] is None
        assert self.get("/v1/images/x/hashes").json["error"]["code"] == "volt.image.no_hashes"
        assert self.get("/v1/images/y/hashes").json["error"]["code"] == "volt.image.unknown"

    def test_half_a_tree_is_refused(self):
        for absent in ("root_hash", "salt", "upper_hashes"):
            answer = self.create(**{absent: None})
            assert answer.json["error"]["code"] == "volt.request.invalid", absent
        for wrong in ({"root_hash": HASH.upper()}, {"salt": "ab"}, {"root_hash": 7}):
            assert self.create(**wrong).json["error"]["code"] == "volt.request.invalid", wrong
        assert self.get("/v1/images").json["images"] == []

    def test_upper_levels_must_be_as_long_as_the_size_asks(self):
        for size, upper in ((MIB, b""), (MIB, UPPER + b"x"), (64 * MIB + 512, UPPER),
                            (512 * 1024, b""), (4096, b""), (512, UPPER)):  # fmt: skip
            answer = self.create(size, upper)
            assert answer.json["error"]["code"] == "volt.image.hashes", (size, len(upper))
        assert self.create(upper_hashes="*").json["error"]["code"] == "volt.image.hashes"
        assert self.get("/v1/images").json["images"] == []
        assert self.create(64 * MIB + 512, UPPER * 3).status_code == 201

    def test_the_hashes_of_a_large_image_fit_into_a_request(self):
        size = 150 * 1024 * MIB
        blocks = 2400 + 19 + 1
        answer = self.create(size, bytes(4096) * blocks)
        assert answer.status_code == 201, answer.text
        assert len(self.get("/v1/images/x/hashes").data) == 4096 * blocks


class TestWrongBytes(HostsCase):
    def setUp(self):
        super().setUp()
        self.join("a", "b", "c", "d", "e")
        self.parent = self.feeder()
        self.reporters = sorted(self.children(self.parent))[:2]
        assert len(self.reporters) == 2

    def report(self, host, parent=None):
        return self.ground.reports.judge("x", host, parent or self.parent, Reason.CORRUPT)

    def test_one_host_may_say_it_ever_so_often(self):
        for _ in range(3):
            assert self.report(self.reporters[0]) == Verdict.NOTED
        assert not self.hosts.show(self.parent).draining
        event = self.hosts.events()[0]
        assert (event.kind, event.host) == ("parent_corrupt", self.parent)
        assert event.detail == f"reported by {self.reporters[0]}"

    def test_a_second_host_has_it_drained(self):
        verdicts = [self.report(host) for host in self.reporters]
        assert verdicts == [Verdict.NOTED, Verdict.DRAINED]
        assert self.children(self.parent) == set()

    def test_a_host_that_an_operator_trusts_again_begins_anew(self):
        for host in self.reporters:
            self.report(host)
        self.hosts.drain(self.parent, False)
        self.join(*(f"m{number}" for number in range(9)))
        child = min(self.children(self.parent))
        assert self.report(child) == Verdict.NOTED

    def test_what_was_said_long_ago_does_not_count(self):
        assert self.report(self.reporters[0]) == Verdict.NOTED
        self.turn(reports.MEMORY + 100)
        assert self.report(self.reporters[1]) == Verdict.NOTED

    def test_nobody_accuses_a_host_that_it_does_not_read_from(self):
        self.assertRaises(errors.ReportMismatch, self.report, self.parent, self.parent)
        assert not [one for one in self.hosts.events() if one.kind == "parent_corrupt"]

    def test_the_source_is_noted_and_goes_on(self):
        fed = next(node.host for tree in self.images.trees("x").trees for node in tree.nodes
                   if node.parent is None)  # fmt: skip
        assert self.report(fed, reports.SOURCE) == Verdict.NOTED
        event = self.hosts.events()[0]
        assert (event.kind, event.image, event.host) == ("source_corrupt", "x", None)
