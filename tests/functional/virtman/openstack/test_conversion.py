"""Images of Glance's become raw files: real files and a real qemu-img, Glance over HTTP."""

import hashlib
import multiprocessing
import os
import shutil
import struct
import subprocess
import time
import unittest
from pathlib import Path
from random import Random

import fixtures
import testtools

from tests.functional.virtman.openstack.glance import PATIENCE, FakeGlance, glance_at
from virtman.errors import VirtmanError
from virtman.kept_tree import KeptTree
from virtman.openstack import conversion, qemu
from virtman.openstack.conversion import make
from virtman.openstack.glance import GlanceUnreachable, ImageGone
from virtman.openstack.inspection import ImageUnusable
from virtman.openstack.room import NoRoom, Room

MIB = 1024 * 1024
LIMIT = 64 * MIB
NOBODY = 65534


def ignore(*words):
    pass


class Job:
    """Who has an image made.

    :ivar heard: all that it was told
    """

    def __init__(self, room=None, name="", then=ignore):
        self.room, self.name, self.then = room, name, then
        self.heard = []

    def told(self, *words):
        self.heard.append(words)
        self.then(*words)

    def need(self, size):
        if self.room is not None:
            self.room.promise(self.name, size)


def make_elsewhere(url, image, folder):
    """What a process does that will be killed."""
    glance = glance_at(url)
    make(glance, glance.show(image), folder, Job(), LIMIT, hashed=True)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class ConversionCase(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.place = Path(self.useFixture(fixtures.TempDir()).path)
        self.folder = self.place / "image"
        self.server = self.useFixture(FakeGlance())
        self.glance = glance_at(self.server.url)
        # Holes at the begin, in the middle and at the end.
        some = [Random(seed).randbytes(MIB) for seed in (1, 2)]
        self.disk = bytes(MIB) + some[0] + bytes(MIB) + some[1] + bytes(MIB)
        self.told, self.room = [], Room(self.place, None)

    def make(self, image, limit=LIMIT, then=ignore, hashed=False):
        job = Job(self.room, self.folder.name, then)
        self.told = job.heard
        shown = self.glance.show(image)
        return make(self.glance, shown, self.folder, job, limit, hashed=hashed).path

    def written(self, name, content):
        file = self.place / name
        file.write_bytes(content)
        return file

    def converted(self, form, *options, disk=None):
        """Return a disk in a format of qemu's."""
        source, file = self.written("disk", disk or self.disk), self.place / f"disk.{form}"
        run("qemu-img", "convert", "-f", "raw", "-O", form, *options, source, file)
        return file.read_bytes()

    def created(self, form, *options, size=4 * MIB):
        """Return an empty disk in a format of qemu's."""
        file = self.place / f"disk.{form}"
        run("qemu-img", "create", "-f", form, *options, file, str(size))
        return file.read_bytes()

    def assert_refused(self, word, image, kind=ImageUnusable, **settings):
        """The image is refused, the message has a word, and no file is left behind."""
        error = self.assertRaises(kind, self.make, image, **settings)
        self.assertIn(word, str(error))
        self.assertIn(image, str(error))
        self.assert_nothing_left()
        return error

    def assert_nothing_left(self):
        self.assertEqual([], list(self.folder.glob("*")) if self.folder.exists() else [])


class RawTest(ConversionCase):
    def test_a_raw_image_is_taken_as_it_is_with_holes_for_zeros(self):
        raw = self.make(self.server.upload(self.disk))
        self.assertEqual((self.folder / "raw", self.disk), (raw, raw.read_bytes()))
        self.assertEqual(2 * MIB, raw.stat().st_blocks * 512)
        self.assertEqual([raw], list(self.folder.iterdir()))

    def test_only_its_owner_can_read_it(self):
        raw = self.make(self.server.upload(self.disk))
        self.assertEqual((0o600, 0o700), (raw.stat().st_mode & 0o777,
                                          self.folder.stat().st_mode & 0o777))  # fmt: skip

    def test_the_last_sector_is_made_whole(self):
        raw = self.make(self.server.upload(b"x" * 1025))
        self.assertEqual(b"x" * 1025 + bytes(511), raw.read_bytes())

    def test_only_what_came_to_its_end_is_made(self):
        self.assertIsNone(conversion.made(self.folder))
        image = self.server.upload(self.disk)
        self.server.breaks_at = MIB
        self.assertRaises(GlanceUnreachable, self.make, image)
        self.assertIsNone(conversion.made(self.folder))
        self.server.breaks_at = None
        self.assertEqual(self.make(image), conversion.made(self.folder).path)

    def test_disks_with_partitions_and_cds_are_raw(self):
        disk = bytearray(self.disk)
        disk[446:462] = struct.pack("<B3BB3BII", 0x80, 0, 2, 0, 0x83, 0, 0, 0, 2048, 4096)
        disk[510:512] = b"\x55\xaa"
        cd = bytearray(self.disk)
        cd[32768:32775] = b"\1CD001\1"
        both = cd[:]
        both[:512] = disk[:512]
        for kind, data in (("raw", disk), ("iso", cd), ("raw", cd), ("iso", both)):
            raw = self.make(self.server.upload(bytes(data), kind))
            self.assertEqual(data, raw.read_bytes())
            raw.unlink()

    def test_how_far_it_is_is_told_twice_a_second_at_most(self):
        self.make(self.server.upload(self.disk))
        size = len(self.disk)
        self.assertEqual(("downloading", 0, size), self.told[0])
        self.assertEqual(("downloading", size, size), self.told[-1])
        self.assertLess(len(self.told), 5)

    def test_the_file_is_on_the_disk_before_it_has_its_name(self):
        synced = []

        def sync(descriptor):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            synced.append((path.name, os.fstat(descriptor).st_size, raw.exists()))

        raw = self.folder / "raw"
        image = self.server.upload(b"x" * 1025)
        with fixtures.MockPatch("os.fsync", sync):
            self.make(image)
        self.assertEqual((".raw.part", 1536, False), synced[0])
        self.assertEqual(("image", True), synced[1][::2])

    def test_any_hash_of_glance_or_none_will_do(self):
        digest = hashlib.md5(b"x" * 1024).hexdigest()
        for known in (
            {"os_hash_algo": "md5", "os_hash_value": digest},
            {"os_hash_algo": None, "os_hash_value": None, "checksum": digest},
            {"os_hash_algo": None, "os_hash_value": None, "checksum": None},
        ):
            self.make(self.server.upload(b"x" * 1024, **known)).unlink()

    def test_damaged_data_are_refused(self):
        for wrong in ({"os_hash_value": "0" * 128}, {"os_hash_algo": None, "checksum": "0" * 32}):
            self.assert_refused("damaged", self.server.upload(self.disk, **wrong))

    def test_an_unknown_hash_is_refused(self):
        for name in ("rot13", "shake_128"):
            self.assert_refused(name, self.server.upload(self.disk, os_hash_algo=name))

    def test_a_file_that_is_shorter_or_longer_than_glance_says_is_refused(self):
        for size, came in ((len(self.disk) + 1, str(len(self.disk))), (MIB, "more")):
            self.assert_refused(f"and {came} came", self.server.upload(self.disk, size=size))

    def test_an_image_that_is_too_large_is_not_even_downloaded(self):
        self.assert_refused(f"{MIB} are allowed", self.server.upload(self.disk), limit=MIB)
        self.assertEqual(0, self.server.downloads)

    def test_images_that_can_be_no_disk_are_not_even_downloaded(self):
        for word, what in (
            ("ovf", {"container_format": "ovf"}),
            ("ami", {"disk_format": "ami"}),
            ("empty", {"data": b""}),
        ):
            self.assert_refused(word, self.server.upload(**{"data": self.disk, **what}))
        self.assertEqual(0, self.server.downloads)

    def test_glance_that_goes_away_on_the_way_leaves_nothing(self):
        image = self.server.upload(self.disk)
        self.server.breaks_at = 2 * MIB + 1
        self.assert_refused("try again", image, GlanceUnreachable)
        self.server.breaks_at = None
        self.assertEqual(self.disk, self.make(image).read_bytes())

    def test_an_image_that_is_deleted_meanwhile_leaves_nothing(self):
        image = self.server.upload(self.disk)

        def delete(step, done, total):
            self.server.images.pop(image, None)

        self.assert_refused("has no image", image, ImageGone, then=delete)


class FormatsTest(ConversionCase):
    def assert_converted(self, data, kind):
        raw = self.make(self.server.upload(data, kind))
        found = raw.read_bytes()
        # Formats of PCs have whole cylinders.
        self.assertEqual(self.disk, found[: len(self.disk)])
        self.assertEqual(b"", found[len(self.disk) :].strip(b"\0"))
        self.assertEqual(0, len(found) % 512)
        self.assertLess(raw.stat().st_blocks * 512, 3 * MIB)
        self.assertEqual([raw], list(self.folder.iterdir()))
        self.assertIn(("downloading", len(data), len(data)), self.told)
        self.assertEqual(("converting", len(found), len(found)), self.told[-1])
        raw.unlink()

    def test_qcow2(self):
        self.assert_converted(self.converted("qcow2"), "qcow2")
        self.assert_converted(self.converted("qcow2", "-c"), "qcow2")
        self.assert_converted(self.converted("qcow2", "-o", "compat=0.10"), "qcow2")

    def test_vmdk(self):
        self.assert_converted(self.converted("vmdk"), "vmdk")
        self.assert_converted(self.converted("vmdk", "-o", "subformat=streamOptimized"), "vmdk")

    def test_vhd_vhdx_and_vdi(self):
        for kind, form in (("vhd", "vpc"), ("vhdx", "vhdx"), ("vdi", "vdi")):
            self.assert_converted(self.converted(form), kind)

    def test_an_empty_disk_takes_no_room(self):
        raw = self.make(self.server.upload(self.created("qcow2", size=32 * MIB), "qcow2"))
        self.assertEqual(32 * MIB, raw.stat().st_size)
        self.assertLess(raw.stat().st_blocks * 512, 65536)

    def test_another_format_than_the_registered_one_is_refused(self):
        qcow2 = self.converted("qcow2")
        self.assert_refused("raw but is qcow2", self.server.upload(qcow2, "raw"))
        self.assert_refused("vmdk but is qcow2", self.server.upload(qcow2, "vmdk"))
        self.assert_refused("qcow2 but is raw", self.server.upload(self.disk, "qcow2"))
        self.assert_refused("iso but is raw", self.server.upload(self.disk, "iso"))

    def test_several_formats_at_once_are_refused(self):
        both = bytearray(self.converted("qcow2"))
        both[32768:32775] = b"\1CD001\1"
        for kind in ("qcow2", "iso", "raw"):
            self.assert_refused("iso, qcow2", self.server.upload(bytes(both), kind))

    def test_a_disk_that_is_too_large_is_refused(self):
        image = self.server.upload(self.created("qcow2", size=1024 * MIB), "qcow2")
        self.assert_refused(f"of {1024 * MIB} bytes, and {LIMIT} are allowed", image)

    def test_a_disk_that_is_larger_than_its_header_says_is_refused(self):
        data = bytearray(self.converted("vmdk", "-o", "subformat=streamOptimized"))
        footer = data[:512]
        footer[12:20] = struct.pack("<Q", 1024 * MIB // 512)
        data[56:64] = b"\xff" * 8  # says that there is a footer, which counts
        data += struct.pack("<QII496x", 1, 0, 3) + footer + bytes(512)
        self.assert_refused(f"of {1024 * MIB} bytes", self.server.upload(bytes(data), "vmdk"))

    def test_a_fraction_of_the_address_space_that_is_granted_is_enough(self):
        """Else many threads at once exceed it, now and then."""
        self.disk = Random(5).randbytes(48 * MIB)
        self.useFixture(fixtures.MockPatchObject(qemu, "_ADDRESS_SPACE", 256 * MIB))
        image = self.server.upload(self.converted("qcow2"), "qcow2")
        self.assertEqual(self.disk, self.make(image).read_bytes())

    def test_a_damaged_file_is_refused(self):
        data = bytearray(self.converted("qcow2"))
        data[40:48] = b"\xff" * 8  # where the first table is
        self.assert_refused("cannot be converted", self.server.upload(bytes(data), "qcow2"))

    def test_a_file_that_was_cut_short_before_glance_had_it_is_refused(self):
        """To qemu, what is beyond its end is zeros."""
        self.disk = Random(5).randbytes(4 * MIB)
        forms = {"qcow2": "qcow2", "vmdk": "vmdk", "vhd": "vpc", "vhdx": "vhdx", "vdi": "vdi"}
        for kind, form in forms.items():
            data = self.converted(form)
            self.make(self.server.upload(data, kind)).unlink()
            image = self.server.upload(data[: 3 * MIB], kind)
            self.assert_refused("upload", image)


class HashTreeTest(ConversionCase):
    """The tree is made while the image is, and is that of the file."""

    def assert_hashed(self, image):
        """All of the image has its kept tree, of what is in the file, without another read."""
        raw = self.make(image, hashed=True)
        read = []
        kept, other = KeptTree(self.folder), KeptTree(self.place / "other")
        size = raw.stat().st_size
        of = kept.of(str(raw), size, lambda *words: read.append(words))
        self.assertEqual([], read)
        copy = self.written("copy", raw.read_bytes())
        self.assertEqual(other.of(str(copy), size, ignore), of)
        self.assertEqual(other.leaves.read_bytes(), kept.leaves.read_bytes())
        shutil.rmtree(self.folder)

    def test_of_raw_images(self):
        self.assert_hashed(self.server.upload(self.disk))
        self.assert_hashed(self.server.upload(self.disk + b"x" * 1025))

    def test_of_a_file_of_glances_own(self):
        store = self.written("store", self.disk)
        self.assert_hashed(self.server.upload(self.disk, direct_url=store.as_uri()))
        self.assertEqual(0, self.server.downloads)

    def test_of_another_file_than_the_one_in_glances_place(self):
        store = self.written("store", bytes(reversed(self.disk)))
        self.assert_hashed(self.server.upload(self.disk, direct_url=store.as_uri()))

    def test_of_converted_images(self):
        for kind, form in (("qcow2", "qcow2"), ("vmdk", "vmdk"), ("vhd", "vpc")):
            self.assert_hashed(self.server.upload(self.converted(form), kind))
        self.assert_hashed(self.server.upload(self.created("qcow2", size=32 * MIB), "qcow2"))

    def test_of_converted_images_of_several_windows(self):
        self.useFixture(fixtures.MockPatchObject(conversion, "_WINDOW", MIB // 2))
        self.test_of_converted_images()
        self.useFixture(fixtures.MockPatchObject(conversion, "_WINDOWS", 3))
        self.test_of_converted_images()

    def test_a_folder_whose_name_is_not_simple(self):
        self.folder = self.place / "a,b={c}"
        self.assert_hashed(self.server.upload(self.converted("qcow2"), "qcow2"))

    def test_a_failure_leaves_no_tree(self):
        image = self.server.upload(self.converted("qcow2"), "qcow2")

        def fail(step, done, total):
            if (step, done) == ("converting", total):
                raise KeyError("stop")

        self.assertRaises(KeyError, self.make, image, then=fail, hashed=True)
        self.assertFalse((self.folder / "raw").exists())
        self.assertEqual([], list(self.folder.glob(".*")))
        self.assert_hashed(image)


class UnsafeTest(ConversionCase):
    """Images that would have this host read another file of it."""

    def setUp(self):
        super().setUp()
        self.secret = self.written("secret", b"s3cret" * MIB)

    def test_qcow2_with_a_backing_file(self):
        data = self.created("qcow2", "-b", self.secret, "-F", "raw")
        self.assert_refused("backing file", self.server.upload(data, "qcow2"))

    def test_qcow2_with_a_data_file(self):
        data = self.created("qcow2", "-o", f"data_file={self.place / 'data'}")
        self.assert_refused("data_file", self.server.upload(data, "qcow2"))

    def test_vmdk_with_extents_elsewhere(self):
        self.created("vmdk", "-o", "subformat=monolithicFlat")
        text = (self.place / "disk.vmdk").read_text()
        text = text.replace("disk-flat.vmdk", str(self.secret))
        self.assert_refused("subformat", self.server.upload(text.encode(), "vmdk"))

    def test_vmdk_with_a_parent(self):
        hint = f'parentCID=1\nparentFileNameHint="{self.secret}"'
        data = self.edited(b"parentCID=ffffffff", hint.encode())
        self.assert_refused("it needs the file", self.server.upload(data, "vmdk"))

    def test_vmdk_of_no_size_that_is_a_list_of_extents_elsewhere(self):
        kind = b'createType="monolithicSparse"'
        other = b'createtype="monolithicSparse"\ncreateType="vmfs"\n'
        extent = b'RW 8192 FLAT "secret" 0\n#'
        data = bytearray(self.edited(kind, other + extent))
        data[12:20] = bytes(8)
        self.assert_refused("of no size", self.server.upload(bytes(data), "vmdk"))

    def test_vhd_with_a_parent(self):
        data = bytearray(self.converted("vpc"))
        for start in (0, len(data) - 512):
            footer = data[start : start + 512]
            footer[60:64], footer[64:68] = b"\0\0\0\4", bytes(4)
            footer[64:68] = struct.pack(">I", ~sum(footer) & 0xFFFFFFFF)
            data[start : start + 512] = footer
        self.assert_refused("parent", self.server.upload(bytes(data), "vhd"))

    def edited(self, old, new):
        """Return a VMDK with another description."""
        data = bytearray(self.created("vmdk"))
        text = bytes(data[512 : 21 * 512]).rstrip(b"\0")
        self.assertIn(old, text)
        data[512 : 21 * 512] = text.replace(old, new).ljust(20 * 512, b"\0")
        return bytes(data)


class LinkTest(ConversionCase):
    def setUp(self):
        super().setUp()
        self.store = self.written("stored image", self.disk)

    def upload(self, **properties):
        url = "file://" + str(self.store).replace(" ", "%20")
        return self.server.upload(self.disk, direct_url=url, **properties)

    def test_a_file_of_glances_own_is_linked_and_stays_when_glance_deletes_it(self):
        raw = self.make(self.upload())
        self.assertTrue(raw.samefile(self.store))
        self.assertEqual(0, self.server.downloads)
        self.store.unlink()
        self.assertEqual(self.disk, raw.read_bytes())

    def assert_downloaded(self, image):
        before = self.server.downloads
        raw = self.make(image)
        self.assertEqual(before + 1, self.server.downloads)
        self.assertFalse(raw.is_symlink())
        self.assertEqual((1, self.disk), (raw.stat().st_nlink, raw.read_bytes()))
        raw.unlink()

    def test_a_file_that_is_not_here_is_downloaded(self):
        self.store.unlink()
        self.assert_downloaded(self.upload())

    def test_symbolic_links_are_not_followed(self):
        target = self.store.rename(self.place / "elsewhere")
        self.store.symlink_to(target)
        self.assert_downloaded(self.upload())

    def test_pipes_and_folders_are_not_opened(self):
        self.store.unlink()
        os.mkfifo(self.store)
        self.assert_downloaded(self.upload())
        self.store.unlink()
        self.store.mkdir()
        self.assert_downloaded(self.upload())

    def test_another_file_at_that_place_is_left_alone(self):
        other = Random(3).randbytes(len(self.disk))
        for content in (other, other[:-512], other + other):
            self.store.write_bytes(content)
            self.assert_downloaded(self.upload())
            self.assertEqual(content, self.store.read_bytes())

    def test_a_file_that_nothing_proves_is_downloaded(self):
        self.assert_downloaded(self.upload(os_hash_value=None, checksum=None))

    def test_a_file_that_must_be_padded_is_downloaded(self):
        self.disk = self.disk[:-1]
        self.store.write_bytes(self.disk)
        raw = self.make(self.upload())
        self.assertEqual(self.disk + b"\0", raw.read_bytes())
        self.assertEqual(self.disk, self.store.read_bytes())

    def test_a_linked_file_is_inspected_as_well(self):
        self.disk = self.converted("qcow2")
        self.store.write_bytes(self.disk)
        self.assert_refused("raw but is qcow2", self.upload())
        self.assertEqual(self.disk, self.store.read_bytes())

    def test_a_link_that_a_killed_process_left_is_not_written_through(self):
        self.folder.mkdir()
        os.link(self.store, self.folder / ".raw.part")
        other = Random(4).randbytes(MIB)
        self.assertEqual(other, self.make(self.server.upload(other)).read_bytes())
        self.assertEqual(self.disk, self.store.read_bytes())


@unittest.skipIf(os.geteuid(), "a file system of its own needs root")
class RoomTest(ConversionCase):
    """On a file system of 8 MiB."""

    def setUp(self):
        super().setUp()
        small = self.place / "small"
        small.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={8 * MIB}", "virtman-test", small)
        self.addCleanup(run, "umount", "--lazy", small)
        self.folder, self.room = small / "image", Room(small, None)

    def make(self, image, **settings):
        self.folder = self.folder.with_name(image)
        try:
            return super().make(image, **settings)
        finally:
            self.room.end(image)

    def filling(self, step):
        """Let somebody else take the room when a step begins."""

        def fill(now, done, total):
            if (now, done) == (step, 0):
                os.posix_fallocate(descriptor, 0, shutil.disk_usage(small).free - MIB)

        small = self.folder.parent
        descriptor = os.open(small, os.O_TMPFILE | os.O_WRONLY)
        self.addCleanup(os.close, descriptor)
        return fill

    def test_an_image_that_does_not_fit_is_not_even_downloaded(self):
        self.assert_refused("are free", self.server.upload(bytes(9 * MIB)), NoRoom)
        self.assertEqual(0, self.server.downloads)

    def test_a_disk_that_does_not_fit_is_not_even_converted(self):
        data = self.converted("qcow2", "-c", disk=b"x" * 9 * MIB)
        self.assertLess(len(data), MIB)
        self.assert_refused("are free", self.server.upload(data, "qcow2"), NoRoom)
        self.assertIn("downloading", [step for step, _, _ in self.told])
        self.assertNotIn("converting", [step for step, _, _ in self.told])

    def test_a_disk_needs_no_room_for_what_is_empty(self):
        disk = bytearray(64 * MIB)
        for start in range(0, len(disk), 40 * MIB):
            disk[start : start + MIB] = Random(start).randbytes(MIB)
        for kind, form, *options in (
            ("qcow2", "qcow2", "-c"),
            ("vmdk", "vmdk", "-o", "subformat=streamOptimized"),
            ("vdi", "vdi"),
        ):
            image = self.server.upload(self.converted(form, *options, disk=bytes(disk)), kind)
            raw = self.make(image, hashed=True)
            self.assertEqual(disk, raw.read_bytes())
            shutil.rmtree(self.folder)

    def test_a_limit_counts_data_and_the_file_that_is_converted(self):
        data = self.converted("qcow2")  # with 2 MiB of data, as the disk
        self.room.limit = 5 * MIB
        self.make(self.server.upload(data, "qcow2"), hashed=True)
        shutil.rmtree(self.folder)
        self.room.limit = 4 * MIB
        error = self.assert_refused("of the limit", self.server.upload(data, "qcow2"), NoRoom)
        self.assertLess(0, error.lack)

    def test_a_disk_that_becomes_full_while_an_image_comes(self):
        image = self.server.upload(self.disk)
        self.assert_refused("make room", image, NoRoom, then=self.filling("downloading"))

    def test_a_disk_that_becomes_full_while_an_image_is_converted(self):
        image = self.server.upload(self.converted("qcow2", "-c"), "qcow2")
        self.assert_refused("make room", image, NoRoom, then=self.filling("converting"))
        self.assertIn("converting", [step for step, _, _ in self.told])

    def test_a_file_of_glances_on_another_file_system_is_downloaded(self):
        store = self.written("store", self.disk)
        raw = self.make(self.server.upload(self.disk, direct_url=store.as_uri()))
        self.assertEqual((1, self.disk), (self.server.downloads, raw.read_bytes()))


class KillTest(ConversionCase):
    """Processes that are killed in the middle, and what the next one makes of it."""

    def start(self, image):
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=make_elsewhere, args=(self.server.url, image, self.folder))
        child.start()
        self.addCleanup(child.close)
        self.addCleanup(child.join)
        self.addCleanup(child.kill)
        return child

    def wait_until(self, happens):
        deadline = time.monotonic() + PATIENCE
        while not happens():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def slow_qemu(self, rate):
        """Have the real qemu-img at so many bytes a second; return the file with its process id."""
        return self.changed_qemu(f'shift; exec {shutil.which("qemu-img")} convert -r {rate} "$@"')

    def changed_qemu(self, convert):
        """Have a shell command in place of conversions; return the file with its process id."""
        real, tools, number = shutil.which("qemu-img"), self.place / "tools", self.place / "pid"
        tools.mkdir()
        script = f"""#!/bin/sh
            [ "$1" = convert ] || exec {real} "$@"
            echo $$ > {number}.new; mv {number}.new {number}
            {convert}
        """
        (tools / "qemu-img").write_text(script)
        (tools / "qemu-img").chmod(0o755)
        path = f"{tools}:{os.environ['PATH']}"
        self.useFixture(fixtures.EnvironmentVariable("PATH", path))
        return number

    def test_killed_while_an_image_comes(self):
        image = self.server.upload(self.disk)
        self.server.waits_at = 3 * MIB
        child = self.start(image)
        part = self.folder / ".raw.part"
        self.wait_until(lambda: part.exists() and part.stat().st_blocks)
        child.kill()
        child.join()
        parts = [self.folder / ".leaves.part", part]
        self.assertEqual(parts, sorted(self.folder.iterdir()))
        self.server.waits_at = None
        self.assertEqual(self.disk, self.make(image).read_bytes())
        self.assertEqual([self.folder / "raw"], list(self.folder.iterdir()))

    def test_killed_while_an_image_is_converted(self):
        image = self.server.upload(self.converted("qcow2"), "qcow2")
        number = self.slow_qemu("512K")
        child = self.start(image)
        part = self.folder / ".raw.part"
        self.wait_until(lambda: part.exists() and part.stat().st_blocks * 512 >= MIB)
        child.kill()
        child.join()
        qemu = int(number.read_text())
        self.wait_until(lambda: not self.runs(qemu))
        self.assertFalse((self.folder / "raw").exists())
        (self.place / "tools" / "qemu-img").unlink()  # the fast one is next
        self.assertEqual(self.disk, self.make(image).read_bytes())
        self.assertEqual([self.folder / "raw"], list(self.folder.iterdir()))

    def test_qemu_img_that_is_killed_is_no_fault_of_the_image(self):
        image = self.server.upload(self.converted("qcow2"), "qcow2")
        number = self.slow_qemu("1M")

        def kill(step, done, total):
            if step == "converting" and done:
                os.kill(int(number.read_text()), 9)

        self.useFixture(fixtures.MockPatchObject(conversion, "_PAUSE", 0))
        error = self.assert_refused("was killed", image, VirtmanError, then=kill)
        self.assertNotIsInstance(error, ImageUnusable)

    def test_qemu_img_ends_with_a_fault_of_whoever_is_told(self):
        image = self.server.upload(self.converted("qcow2"), "qcow2")
        number = self.slow_qemu("1M")

        def fail(step, done, total):
            if step == "converting" and done:
                raise KeyError("stop")

        self.useFixture(fixtures.MockPatchObject(conversion, "_PAUSE", 0))
        self.assertRaises(KeyError, self.make, image, then=fail)
        self.assertFalse(self.runs(int(number.read_text())))
        self.assert_nothing_left()

    def test_qemu_img_that_computes_for_too_long_is_ended(self):
        image = self.server.upload(self.converted("qcow2"), "qcow2")
        self.changed_qemu("while :; do :; done")
        self.useFixture(fixtures.MockPatchObject(qemu, "_SECONDS", 1))
        self.assert_refused("too much of the processor", image)

    def test_a_host_without_qemu_img_says_so(self):
        image = self.server.upload(self.converted("qcow2"), "qcow2")
        tools = self.place / "tools"
        tools.mkdir()
        for name in ("setpriv", "prlimit"):
            (tools / name).symlink_to(shutil.which(name))
        self.useFixture(fixtures.EnvironmentVariable("PATH", str(tools)))
        error = self.assertRaises(VirtmanError, self.make, image)
        self.assertIn("qemu-utils", str(error))
        self.assertNotIsInstance(error, ImageUnusable)

    def runs(self, process):
        """Whether a process runs; one whose parent does not ask is a zombie."""
        try:
            state = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return False
        return state.rsplit(")", 1)[1].split()[0] != "Z"
