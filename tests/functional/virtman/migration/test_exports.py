"""Layers go elsewhere as files, and come back: right, or not at all."""

import contextlib
import errno
import io
import json
import os
from pathlib import Path

import fixtures
import zstandard

from tests.functional.virtman.base import SIZE
from tests.functional.virtman.doubles.kernel import Kernel
from tests.functional.virtman.doubles.model import CHUNK
from tests.functional.virtman.doubles.process import Killed, Process
from tests.functional.virtman.migration.test_commits import CommitCase
from virtman import source, unpacking
from virtman.coordinator.interface import Shape
from virtman.disk.layers import Layers
from virtman.errors import (
    ImageMismatch,
    ImageUnknown,
    LayerExists,
    LayerFileInvalid,
    LayerUnknown,
    NoSpace,
)
from virtman.migration import exports
from virtman.migration.making import Making
from virtman.model import layer_format


class ExportCase(CommitCase):
    def setUp(self):
        super().setUp()
        self.commit()
        self.file = b"".join(self.a.commits.file_of("web"))

    def receive(self, file, name="", node=None):
        node = node or self.b
        with node.process.here():
            return node.commits.receive(io.BytesIO(file), name)

    def labelled(self, **changed):
        """Return the file with another label."""
        line, packed = self.file.split(b"\n", 1)
        return json.dumps(json.loads(line) | changed).encode() + b"\n" + packed


class Storage:
    """A storage node with a folder for files."""

    def __init__(self, test):
        folder = Path(test.useFixture(fixtures.TempDir()).path)
        self.folder = folder / "images"
        self.folder.mkdir()
        for name, stand_in in (
            ("_SECRETS", folder / "sources"),
            ("_HASHES", folder / "hashes"),
            ("become_privileged", lambda: None),
        ):
            test.useFixture(fixtures.MockPatchObject(source, name, stand_in))
        self.process = Process(Kernel(test.kernels.network, "storage"))
        self.where = source.Storage("storage", "192.0.2.99", 3260)
        self.volt = test.bed.volt.url
        self.access = test.bed.access("operator", test.bed.volt.ground.operator)

    def add(self, content):
        (self.folder / "web").write_bytes(content)
        self.serve("web")

    def serve(self, name):
        with self.process.here():
            source.add("web", str(self.folder / name), self.where, self.volt, self.access, Shape(),
                       layered=True)  # fmt: skip

    def files(self):
        return sorted(path.name for path in self.folder.iterdir())

    def full(self, *_):
        raise OSError(errno.ENOSPC, "no space left on device")


class ExportTest(ExportCase):
    def test_a_layer_comes_back_where_volt_lost_it(self):
        self.assertLess(len(self.file), CHUNK)
        self.assertTrue(self.remove())
        self.assert_gone()
        self.receive(self.file)
        self.assertEqual("kept", self.ended(node=self.b).state)
        self.assertEqual(["web.hashes", "web.json", "web.layer"], self.files(self.b))
        self.a.create("vm2", "web")
        self.assertEqual("ab...f..", self.read(self.a, "vm2", image="web"))
        self.assertEqual(self.file, b"".join(self.b.commits.file_of("web")))

    def test_a_storage_node_serves_what_was_exported(self):
        self.assertTrue(self.remove())
        storage = Storage(self)
        self.assertRaises(LayerFileInvalid, storage.add, self.file[:-1])
        self.assertRaises(LayerFileInvalid, storage.add, self.file.replace(b"file 1", b"file 2"))
        self.assertRaises(ImageMismatch, storage.add, self.labelled(parent_origin="other"))
        self.assertEqual(["web"], storage.files())
        full = fixtures.MockPatchObject(os, "posix_fallocate", storage.full)
        with full:
            self.assertRaises(NoSpace, storage.add, self.file)
        self.assertEqual(["web"], storage.files())
        storage.add(self.file)
        self.assertEqual(["web", "web.layer"], storage.files())
        self.assertEqual("debian", self.known().layer.parent)
        self.b.create("vm2", "web")
        self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"))
        made = (storage.folder / "web.layer").stat().st_ino
        storage.add(self.file)
        self.assertEqual(made, (storage.folder / "web.layer").stat().st_ino)
        # it is unpacked anew where it was not right
        with open(storage.folder / "web.layer", "r+b") as file:
            file.write(b"rot")
        storage.add(self.file)
        self.assertNotEqual(made, (storage.folder / "web.layer").stat().st_ino)
        # and is the layer by itself
        (storage.folder / "web").unlink()
        storage.serve("web.layer")

    def test_it_may_have_another_name_beside_the_first(self):
        self.receive(self.file, "copy")
        self.assertEqual("kept", self.ended("copy", self.b).state)
        self.restart(self.b, reboot=True)
        self.assertEqual("kept", self.ended("copy", self.b).state)
        self.a.create("vm2", "copy")
        self.assertEqual("ab...f..", self.read(self.a, "vm2", image="copy"))
        self.a.destroy("vm2")
        self.a.drop("copy")
        self.a.beat()
        self.assertTrue(self.remove("copy", self.b))
        self.assertEqual([], self.files(self.b))

    def test_a_vm_that_has_the_name_of_a_copy_stays(self):
        self.b.create("copy.now")
        self.receive(self.file, "copy")
        self.assertEqual("kept", self.ended("copy", self.b).state)
        self.restart(self.b)
        self.ended("copy", self.b)
        self.assertEqual(["copy.now"], self.names(self.b))

    def test_what_was_changed_or_cut_is_refused(self):
        line, packed = self.file.split(b"\n", 1)
        middle = len(packed) // 2
        other = zstandard.compress(layer_format.header(layer_format.Description("debian", "x", 1)))
        flipped = bytes([packed[middle] ^ 1])
        for number, file in enumerate((
            line + b"\n" + packed[:middle] + flipped + packed[middle + 1 :],
            line + b"\n" + packed[:middle],
            line + b"\n" + packed[:-1],
            line + b"\n" + packed + b"\0",
            line + b"\n" + packed + bytes(1 << 20),
            line + b"\n" + other,
            line + b"\n",
            line,
            b"",
            b"[]\n" + packed,
            self.labelled(format="virtman layer file 2"),
            self.labelled(root="0" * 64),
            self.labelled(length=4096),
            self.labelled(length=4 << 20),
            self.labelled(disk_size=2 * SIZE),
            self.labelled(length="x"),
            self.labelled(more=1),
        )):  # fmt: skip
            self.assertRaises(LayerFileInvalid, self.receive, file, "copy")
            self.assertEqual([], self.files(self.b), number)
        self.assertRaises(ImageUnknown, self.known, "copy")
        self.receive(self.file, "copy")
        self.assertEqual("kept", self.ended("copy", self.b).state)

    def test_another_parent_is_refused(self):
        self.assertRaises(ImageUnknown, self.receive, self.labelled(parent="nope"), "copy")
        self.bed.network.contents["other"] = "other"
        self.bed.register("other")
        self.assertRaises(ImageMismatch, self.receive, self.labelled(parent="other"), "copy")
        # a parent that fits the label, but not what is in the file
        origin = self.known("other").origin
        file = self.labelled(parent="other", parent_origin=origin)
        self.assertRaises(LayerFileInvalid, self.receive, file, "copy")
        self.assertEqual([], self.files(self.b))

    def test_what_cannot_be_is_an_error(self):
        self.assertRaises(LayerExists, self.receive, self.file)
        self.assertRaises(LayerExists, self.receive, self.file, "debian")
        self.assertRaises(LayerUnknown, self.a.commits.file_of, "nope")
        space = type(self.b.agent.stores.space)
        with fixtures.MockPatchObject(space, "spare", lambda *_: CHUNK):
            self.assertRaises(NoSpace, self.receive, self.file, "copy")
        self.assertEqual([], self.files(self.b))


class KillTest(ExportCase):
    def test_an_agent_that_dies_as_a_layer_comes_has_it_or_nothing(self):
        kept = []
        for whose, place in (
            (unpacking.layer_format, "describe"),
            (exports, "unpack"),
            (Making, "serve"),
            (Making, "finish"),
        ):
            with fixtures.MockPatchObject(whose, place, self.dying(getattr(whose, place))):
                self.begin_to_receive()
            self.restart(self.b)
            self.await_(lambda: not self.b.commits._threads)
            if self.files(self.b):
                self.assertEqual("kept", self.ended("copy", self.b).state)
                self.known("copy")
                self.assertTrue(self.remove("copy", self.b))
                kept.append(place)
            self.assertEqual([], self.files(self.b))
            self.assertRaises(ImageUnknown, self.known, "copy")
        self.assertEqual(["unpack", "serve", "finish"], kept)

    def begin_to_receive(self):
        # who is dead takes nothing away
        with (
            fixtures.MockPatchObject(Layers, "forget", lambda *_: None),
            contextlib.suppress(Killed),
        ):
            self.receive(self.file, "copy")
            self.await_(lambda: self.b.process.dead)

    def dying(self, verb):
        def dies(*words):
            verb(*words)
            self.b.process.dead = True
            raise Killed("here")

        return dies
