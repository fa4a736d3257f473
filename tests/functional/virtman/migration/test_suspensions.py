"""A VM's memory becomes part of a layer; whoever dies on the way, the VM goes on."""

import io
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import fixtures

from tests.functional.virtman.background.test_boots import HOW, PIECE, Quick, following
from tests.functional.virtman.base import DEADLINE
from tests.functional.virtman.doubles.guest_agent import GuestAgent
from tests.functional.virtman.doubles.process import Killed
from tests.functional.virtman.doubles.qemu import CARD, CONTROLLER, DISK, PORT, Qemu
from tests.functional.virtman.migration.test_commits import CommitCase
from tests.functional.virtman.migration.test_exports import Storage
from virtman import source
from virtman.background.boots import Boots
from virtman.coordinator.interface import Shape
from virtman.errors import (
    ImageUnknown,
    InstanceUnknown,
    InvalidRequest,
    KernelFailure,
    NicsAttached,
    NoSpace,
    QemuFailed,
    SessionsOpen,
    SuspendedForeign,
    SuspendedInvalid,
    VirtmanError,
)
from virtman.image.boot import Options
from virtman.migration import suspensions
from virtman.migration.commits import Commits
from virtman.model import hashtree, layer_format, sizes, suspended
from virtman.model.dirty import CHUNK as BYTES
from virtman.model.naming import MAPPER
from virtman.model.profile import BOOT
from virtman.model.profile_format import decode
from virtman.model.suspended import Device, Hardware, Suspended
from virtman.qemu import guests
from virtman.qemu.guests import Guest

HASH = "ab" * 32
HARDWARE = Hardware(
    "10.0", "tcg", "pc-i440fx-10.0", "qemu64", HASH, 1, 1, 1, 32 * BYTES, "pc.ram",
    canonical=False, serials=1, devices=(Device(DISK, "02.0"),),
)  # fmt: skip
HELD = (0, 5, 32)  # chunks of the memory, and the device state behind it


class Saved:
    """What saves a VM in place of two QEMUs: its memory has some chunks that are not zeros."""

    def __init__(self, layers, qmp, fails=None, held=HELD, project="", is_long=False):
        self.layers = layers
        self.qmp = qmp
        self.fails = fails
        self.held = held
        self.project = project
        self.is_long = is_long

    def check(self, vm, device):
        pass

    def save(self, commit, copy, tell):
        copy()
        tell("saving", 1, 2)
        while self.is_long:
            time.sleep(0.01)
            tell("saving", 1, 2)
        if self.fails is not None:
            raise self.fails
        with open(self.layers.memory(commit.name), "wb") as file:
            for number in self.held:
                os.pwrite(file.fileno(), bytes([65 + number]) * 100, number * BYTES)
        made = Suspended(suspended.place(0), 100, HASH, HARDWARE, self.project)
        return replace(commit, qmp="", suspended=made)


class Emptied:
    """``Saving`` of a VM whose memory is zeros: a QEMU that only answers sends none."""

    def __init__(self, monitor, hardware, disk, file):
        self.memory, self.file = hardware.memory, file

    @contextmanager
    def converter(self):
        yield None

    @contextmanager
    def still(self, converter, tell):
        tell(0, self.memory)
        yield

    def state(self, converter):
        self.file.write_bytes(b"")
        os.truncate(self.file, self.memory)
        with self.file.open("ab") as file:
            file.write(b"state")
        return b"state"


class SuspensionTest(CommitCase):
    def setUp(self):
        super().setUp()
        self.qemu = Qemu(self.a.folder / "qmp", "/nowhere/disk")
        self.addCleanup(self.qemu.stop)

    def saved(self, node=None, **words):
        return Saved((node or self.a).commits.layers, self.qemu.path, **words)

    def suspension(self, **words):
        info = self.a.agent.coordinator.image("debian")
        return suspensions.Suspension(self.a.commits.layers, info, self.qemu.path, **words)

    def numbers(self, name):
        file = os.open(self.a.folder / "layers" / f"{name}.layer", os.O_RDONLY)
        self.addCleanup(os.close, file)
        return list(layer_format.numbers(lambda at, length: os.pread(file, length, at)))

    def test_a_layer_has_the_memory_behind_the_disk(self):
        self.commit(suspension=self.saved())
        self.assert_kept()
        first = suspended.place(0) // BYTES
        self.assertEqual([0, 1, 5, *(first + one for one in HELD)], self.numbers("web"))
        layer = self.known().layer
        self.assertEqual(Suspended(suspended.place(0), 100, HASH, HARDWARE), layer.suspended)
        content = (self.a.folder / "layers" / "web.layer").read_bytes()
        self.assertEqual(b"A" * 100, content[layer_format.place(3) * BYTES :][:100])
        self.b.create("vm2", "web")
        self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"))
        # what Volt said is there without it too
        self.bed.volt.silence()
        with self.b.process.here():
            self.assertEqual(layer, self.b.agent.coordinator.image("web").layer)
        self.bed.volt.silence(False)

    def test_who_goes_on_has_its_pages_on_record_and_boots_nothing_below(self):
        self.useFixture(Quick())
        self.commit(suspension=self.saved())
        self.b.create("vm2", "web")
        opened = [one for one in self.b.kernel.loops.values() if one.path.startswith(MAPPER)]
        ahead = {
            (one.path.split("_")[1], one.read_ahead)
            for one in opened
            if one.path.split("_")[2].startswith(("export", "leaves"))
        }
        self.assertEqual({("web", hashtree.BLOCK), ("debian", sizes.READ_AHEAD)}, ahead)
        boots = Boots(self.b.agent.images, Options(1, PIECE, True, HOW), self.b.heartbeat.hasten)
        self.addCleanup(boots.stop)
        with self.b.process.here():
            boots.look()
        self.b.kernel.vm_reads("web", 35 * hashtree.BLOCK, 2 * hashtree.BLOCK)
        self.b.kernel.vm_reads("debian", 0, PIECE)
        self.await_(lambda: not following(), following)
        volt = self.bed.operator()
        self.assertIsNone(volt.profile("debian", BOOT))
        found = decode(volt.profile("web", BOOT)[0])
        self.assertEqual((hashtree.BLOCK, (35, 36)), (found.piece_size, found.wanted()))
        # who boots what lies below is recorded as ever
        self.b.create("vm3", "debian")
        with self.b.process.here():
            boots.look()
        self.b.kernel.vm_reads("debian", PIECE, PIECE)
        self.await_(lambda: not following(), following)
        self.assertIn(1, decode(volt.profile("debian", BOOT)[0]).wanted())

    def test_each_of_a_chain_has_its_own_place_and_the_fourth_that_of_the_third(self):
        places, image, vm = [], "debian", "vm1"
        for number in range(4):
            name = f"l{number}"
            self.commit(name, vm, suspension=self.saved(held=(number, 32)))
            layer = self.known(name).layer
            places.append((layer.parent, layer.suspended.at))
            vm, image = f"vm{number + 2}", name
            self.a.create(vm, image)
        zeroth, first, second = map(suspended.place, range(3))
        self.assertEqual(
            [("debian", zeroth), ("l0", first), ("l1", second), ("l1", second)], places
        )
        self.assertEqual([second // BYTES + 3, second // BYTES + 32], self.numbers("l3")[-2:])

    def test_it_goes_elsewhere_as_a_file_and_is_one_there(self):
        self.commit(suspension=self.saved())
        self.assert_kept()
        saved = self.known().layer.suspended
        file = b"".join(self.a.commits.file_of("web"))
        self.assertTrue(self.remove())
        self.assert_gone()
        with self.b.process.here():
            self.b.commits.receive(io.BytesIO(file), "web")
        self.assertEqual("kept", self.ended(node=self.b).state)
        self.assertEqual(saved, self.known().layer.suspended)
        self.assertTrue(self.remove(node=self.b))
        storage = Storage(self)
        storage.add(file)
        self.assertEqual(saved, self.known().layer.suspended)

    def test_an_agent_that_dies_with_the_bytes_of_a_file_has_the_next_make_it_one(self):
        self.commit(suspension=self.saved())
        file = b"".join(self.a.commits.file_of("web"))
        dying = fixtures.MockPatchObject(Commits, "_begin", self.dies)
        with dying, self.b.process.here():
            self.assertRaises(Killed, self.b.commits.receive, io.BytesIO(file), "copy")
        self.restart(self.b)
        self.assertEqual("kept", self.ended("copy", self.b).state)
        saved = self.known().layer.suspended
        self.assertEqual(saved, self.known("copy").layer.suspended)

    def dies(self, *_):
        self.b.process.dead = True
        raise Killed("here")

    def test_a_commit_of_who_was_resumed_has_no_memory(self):
        self.commit(suspension=self.saved())
        self.a.create("vm2", "web")
        self.commit("own", "vm2")
        self.assertIsNone(self.known("own").layer.suspended)
        self.assertEqual([], self.numbers("own"))

    def test_an_agent_that_dies_before_it_has_the_memory_has_the_next_let_the_vm_go_on(self):
        self.begin(suspension=self.saved(fails=Killed()))
        thread = self.a.commits._threads["web"]
        thread.join(DEADLINE)
        self.assertFalse(thread.is_alive())
        self.qemu.status = "postmigrate"
        self.restart(self.a)
        self.await_(lambda: not self.a.commits.layers.all(), self.a.commits.all)
        self.assertEqual("running", self.qemu.status)
        self.assert_gone()

    def suspended(self, vm, name):
        """Have a VM suspended whose QEMU has another one's memory; return what was read before."""
        self.qemu.disk = f"/dev/virtman/{vm}.disk"
        ahead = self.a.kernel.ahead
        ahead.clear()
        found = []

        class Saving(Emptied):
            def converter(self):
                found.extend(ahead)
                return super().converter()

        with fixtures.MockPatchObject(suspensions, "Saving", Saving):
            with self.a.process.here():
                self.a.commits.suspend(vm, name, self.qemu.path)
            self.assertEqual("kept", self.ended(name).state)
        return [(offset, length) for of, offset, length in found if of == "virtman_web_base"]

    def test_all_memory_of_who_was_resumed_is_read_before_it_is_saved(self):
        memory = 33 << 20
        with fixtures.MonkeyPatch(f"{__name__}.HARDWARE", replace(HARDWARE, memory=memory)):
            self.commit(suspension=self.saved())
        for vm in ("vm2", "vm3"):
            self.a.create(vm, "web")
        self.assertEqual([], self.suspended("vm2", "booted"))
        self.qemu.memory = "file"
        found = self.suspended("vm3", "own")
        ends = [offset + length for offset, length in found]
        self.assertEqual([suspended.place(0), *ends[:-1]], [offset for offset, _ in found])
        self.assertEqual(suspended.place(0) + memory, ends[-1])
        self.assertLessEqual(max(length for _, length in found), 1 << 20)

    def test_memory_that_cannot_be_read_is_an_error_before_anything_is_made(self):
        self.commit(suspension=self.saved())
        self.a.create("vm2", "web")
        self.qemu.memory, self.qemu.disk = "file", "/dev/virtman/vm2.disk"
        self.a.kernel.mapping("virtman_web_base").hung = True
        with self.a.process.here():
            self.a.commits.suspend("vm2", "own", self.qemu.path)
        failed = self.ended("own")
        self.assertEqual(("failed", KernelFailure.code), (failed.state, failed.code))
        self.await_(lambda: self.a.commits.layers.find("own") is None, self.a.commits.all)
        self.assertNotIn("migrate", self.qemu.told)

    def test_nothing_is_left_of_what_fails(self):
        for fault in (QemuFailed("no"), NoSpace("no"), KeyError("no")):
            self.qemu.status = "postmigrate"
            failed = self.commit(suspension=self.saved(fails=fault))
            code = getattr(fault, "code", VirtmanError.code)
            self.assertEqual(("failed", code), (failed.state, failed.code))
            self.assertIn("no", failed.note)
            self.await_(lambda: not self.a.commits.layers.all(), self.a.commits.all)
            self.assert_gone()
            self.assertEqual("running", self.qemu.status)
            self.assertEqual("ab...f..", self.read(self.a, "vm1"))

    def test_one_that_is_given_up_meanwhile_goes_on_and_nothing_is_left(self):
        self.begin(suspension=self.saved(is_long=True))
        self.await_(lambda: self.a.commits.show("web").total == 2, self.a.commits.all)
        shown = self.a.commits.show("web")
        self.assertEqual(("saving", 1), (shown.state, shown.done))
        # who asks for the same again is told how far it is
        self.assertEqual(shown, self.begin(suspension=self.saved()))
        self.qemu.status = "postmigrate"
        self.assertTrue(self.remove())
        self.assertEqual("running", self.qemu.status)
        self.assert_gone()

    def test_an_agent_that_ends_meanwhile_has_the_next_undo_it(self):
        self.begin(suspension=self.saved(is_long=True))
        self.await_(lambda: self.a.commits.show("web").total == 2, self.a.commits.all)
        self.a.commits.stop()
        self.assertEqual({}, self.a.commits._threads)
        self.restart(self.a)
        self.await_(lambda: not self.a.commits.layers.all(), self.a.commits.all)
        self.assert_gone()

    def refused(self, kind, **words):
        with self.a.process.here():
            refused = self.assertRaises(
                kind, self.a.commits.suspend, "vm1", "web", self.qemu.path, **words
            )
        self.assert_gone()
        return str(refused)

    def test_a_vm_on_another_disk_is_refused(self):
        self.assertIn("/nowhere/disk", self.refused(SuspendedInvalid))
        with self.a.process.here():
            self.assertRaises(InstanceUnknown, self.a.commits.suspend, "vm9", "web", "/x")
            self.assertRaises(QemuFailed, self.a.commits.suspend, "vm1", "web", "/nowhere")

    def test_one_that_does_not_run_or_has_cards_is_refused(self):
        self.qemu.disk = "/dev/virtman/vm1.disk"
        self.qemu.status = "paused"
        self.assertIn("paused", self.refused(SuspendedInvalid))
        self.qemu.status, self.qemu.devices = "running", (DISK, CARD)
        self.assertIn("52:54:00:00:00:01", self.refused(NicsAttached))

    def test_one_that_somebody_is_logged_in_to_is_refused_unless_forced(self):
        self.qemu.disk = "/dev/virtman/vm1.disk"
        self.qemu.devices = (DISK, CONTROLLER, PORT)
        agent = GuestAgent(self.a.folder / "agent", ("alice",))
        self.addCleanup(agent.stop)
        self.qemu.channel = f"unix:{agent.path},server=on"
        self.assertIn("alice", self.refused(SessionsOpen))
        with self.a.process.here():
            self.suspension(forced=True).check("vm1", "/nowhere/disk")
            agent.users = ()
            self.suspension().check("vm1", "/nowhere/disk")

    def test_memory_that_a_vm_has_of_a_project_stays_there(self):
        self.commit(suspension=self.saved(project="shop"))
        self.assertEqual("shop", self.known().project)
        self.a.create("vm2", "web")
        with self.a.process.here():
            suspend = self.a.commits.suspend
            for project, kind in (("other", SuspendedForeign), ("a,b", InvalidRequest)):
                self.assertRaises(kind, suspend, "vm2", "own", self.qemu.path, project=project)
        info = self.known()
        for wanted in ("", "shop"):
            self.assertEqual("shop", suspensions.project(info, self.qemu.path, wanted))

    def test_a_vm_of_a_project_that_was_resumed_from_memory_of_none_is_of_its_own(self):
        self.commit(suspension=self.saved())
        folder = self.a.folder / "guests"
        self.useFixture(fixtures.MockPatchObject(guests, "GUESTS", folder))
        guests.begin(Guest("vm2", "uuid", "/dev/null", "shop"))
        of = partial(suspensions.project, self.known(), str(guests.monitor_of("vm2")))
        self.assertEqual(["shop", "other"], [of(wanted) for wanted in ("", "other")])
        self.assertEqual("", suspensions.project(self.known(), self.qemu.path, ""))

    def test_no_image_is_based_on_memory_of_another_project(self):
        storage, files = Storage(self), {}
        for project in ("shop", "other"):
            self.commit(suspension=self.saved(project=project))
            files[project] = b"".join(self.a.commits.file_of("web"))
            self.remove()
            self.assert_gone()

        def based(image, project, *names):
            path = storage.folder / image
            path.write_bytes(files[project])
            with storage.process.here():
                return source.add(
                    image, str(path), storage.where, storage.volt, storage.access, Shape(),
                    layered=True, base=source.Base(names, is_found=not names),
                ).based_on  # fmt: skip

        self.assertEqual((), based("gold", "shop"))
        self.assertEqual(("gold",), based("silver", "shop"))
        self.assertEqual((), based("bronze", "other"))
        refused = self.assertRaises(SuspendedForeign, based, "tin", "other", "gold")
        self.assertIn("memory of VMs of project shop", str(refused))
        self.assertRaises(ImageUnknown, self.known, "tin")

    def test_with_a_save_the_vm_here_must_never_have_run(self):
        self.qemu.disk = "/dev/virtman/vm1.disk"
        self.assertIn("-incoming defer", self.refused(SuspendedInvalid, saved="/nowhere/save"))
        with self.a.process.here():
            for status in ("inmigrate", "prelaunch"):
                self.qemu.status = status
                self.suspension(saved="/nowhere/save").check("vm1", "/nowhere/disk")
