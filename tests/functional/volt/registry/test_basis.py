"""On which images another is based, as whoever serves it tells Volt."""

import struct
from base64 import b64encode
from hashlib import sha256

from tests.functional.volt.base import TestCase
from volt.model.basis import LARGEST, parse

ROOT, OLD, OLDER = "0f" * 32, "e1" * 32, "77" * 32
UPPER = bytes(4096)
RUNS = b"what agents read"


def basis(*others, root=ROOT, shared=3, version=1, runs=RUNS, magic=b"VMBS"):
    """Return what says that an image is based on these."""
    body = bytes.fromhex(root) + struct.pack("<QB", shared, len(others))
    body += b"".join(struct.pack("<48s32s", name.encode(), bytes.fromhex(r)) for name, r in others)
    body += runs
    return magic + bytes([version]) + sha256(body).digest() + body


class TestBasis(TestCase):
    def create(self, name="x", root=ROOT, **more):
        source = {"ip": "127.0.0.1", "port": self.ground.source_port, "iqn": "iqn.2003-01.org.a:s",
                  "lun": 0}  # fmt: skip
        hashes = {"root_hash": root, "salt": ROOT, "upper_hashes": b64encode(UPPER).decode()}
        body = {"name": name, "size": 1 << 20, "source": source} | hashes
        if "basis" in more:
            content = more["basis"]
            body["basis"] = None if content is None else b64encode(content).decode()
        return self.ground.client().post("/v1/images", json=body)

    def refused(self, code, words, **more):
        error = self.create(**more).json["error"]
        assert (error["code"], words in error["message"]) == (code, True), error

    def get(self, path):
        return self.ground.client().get(path)

    def test_it_is_shown_with_the_image_and_its_runs_by_themselves(self):
        self.create("old", OLD)
        self.create("older", OLDER)
        content = basis(("older", OLDER), ("old", OLD))
        for status in (201, 200):
            answer = self.create(basis=content)
            assert answer.status_code == status, answer.text
        expected = {"images": ["older", "old"], "shared": 3 * 4096}
        for shown in (answer.json, self.get("/v1/images/x").json):
            assert shown["basis"] == expected
        answer = self.get("/v1/images/x/basis")
        assert (answer.data, answer.mimetype) == (content, "application/octet-stream")
        assert self.get("/v1/images/old").json["basis"] is None
        answer = self.get("/v1/images/old/basis")
        assert answer.json["error"]["code"] == "volt.basis.unknown"

    def test_it_may_come_later_and_stays_until_another_comes(self):
        self.create("old", OLD)
        self.create()
        assert self.get("/v1/images/x").json["basis"] is None
        assert self.create(basis=basis(("old", OLD))).json["basis"]["shared"] == 3 * 4096
        assert self.create().json["basis"]["shared"] == 3 * 4096
        assert self.create(basis=basis(("old", OLD), shared=5)).json["basis"]["shared"] == 5 * 4096

    def test_it_can_be_taken_away(self):
        self.create("old", OLD)
        self.create(basis=basis(("old", OLD)))
        for _ in range(2):
            assert self.create(basis=None).json["basis"] is None
        assert self.get("/v1/images/x/basis").json["error"]["code"] == "volt.basis.unknown"
        assert self.create("y", basis=None).json["basis"] is None
        self.create("old", OLD, basis=basis(("x", ROOT), root=OLD))

    def test_it_must_fit_the_images_that_volt_knows(self):
        self.create("old", OLD)
        foreign = "volt.basis.foreign"
        self.refused("volt.image.unknown", "none is not known", basis=basis(("none", OLD)))
        self.refused(foreign, "another root hash", basis=basis(("old", OLDER)))
        self.refused(foreign, "based on itself", basis=basis(("x", ROOT)))
        self.refused(foreign, "compare this image", basis=basis(("old", OLD), root=OLDER))
        assert self.get("/v1/images/x").json["error"]["code"] == "volt.image.unknown"
        self.create(basis=basis(("old", OLD)))
        circle = basis(("x", ROOT), root=OLD)
        self.refused(foreign, "which is based on it", name="old", root=OLD, basis=circle)
        self.create("y", OLDER, basis=basis(("x", ROOT), root=OLDER))
        circle = basis(("y", OLDER), root=OLD)
        self.refused(foreign, "which is based on it", name="old", root=OLD, basis=circle)

    def test_what_is_no_basis_is_refused(self):
        self.create("old", OLD)
        fine, invalid = basis(("old", OLD)), "volt.basis.invalid"
        for content, words in (
            (b"", "no basis"),
            (basis(("old", OLD), magic=b"VMBP"), "no basis"),
            (basis(("old", OLD), version=2), "version 2"),
            (fine[:-1], "checksum"),
            (basis(), "names 0 images"),
            (basis(*((f"old{number}", OLD) for number in range(5))), "names 5 images"),
            (basis(("old", OLD), ("older", OLDER), ("old", OLD)), "twice: old, older, old"),
            (basis(runs=b"")[:37] + fine[37:60], "no basis"),
            (basis(("old", OLD), runs=bytes(LARGEST)), "at most"),
        ):
            self.refused(invalid, words, basis=content)
        self.refused("volt.name.invalid", "UPPER", basis=basis(("UPPER", OLD)))

    def test_an_image_without_a_tree_has_none(self):
        source = {"ip": "127.0.0.1", "port": self.ground.source_port, "iqn": "iqn.2003-01.org.a:s",
                  "lun": 0}  # fmt: skip
        body = {"name": "x", "size": 1 << 20, "source": source}
        body["basis"] = b64encode(basis(("old", OLD))).decode()
        answer = self.ground.client().post("/v1/images", json=body)
        assert answer.json["error"]["code"] == "volt.request.invalid"

    def test_volt_reads_what_hosts_write(self):
        found = parse(b64encode(basis(("old", OLD))).decode())
        assert (found.root_hash, found.shared) == (ROOT, 3 * 4096)
        assert [(one.name, one.root_hash) for one in found.others] == [("old", OLD)]
