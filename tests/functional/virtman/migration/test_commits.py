"""What VMs wrote becomes layers, and VMs begin with these; whoever dies on the way."""

import contextlib
import errno
import threading

import fixtures

from tests.functional.virtman.base import DEADLINE, ENOUGH, SIZE
from tests.functional.virtman.doubles.model import CHUNK
from tests.functional.virtman.doubles.process import Killed
from tests.functional.virtman.migration.test_moves import MoveCase
from virtman.disk.layers import Layers
from virtman.errors import (
    CoordinatorRefused,
    DeviceBusy,
    ImageInUse,
    ImageMismatch,
    ImageUnknown,
    InstanceExists,
    InstanceSize,
    InstanceUnknown,
    LayerExists,
    LayerUnknown,
    NoSpace,
    ParentUnreachable,
)
from virtman.migration.commits import Commits
from virtman.migration.making import Making
from virtman.model import layer_format
from virtman.node.check import Check
from volt.model.hosts import ImageReport, Report
from volt.registry import source


class CommitCase(MoveCase):
    def setUp(self):
        super().setUp()
        # nodes listen in their simulated kernels only
        self.useFixture(fixtures.MockPatchObject(source, "check_answers", lambda *_: None))
        self.useFixture(fixtures.MockPatchObject(threading, "excepthook", self.died))
        self.a.create("vm1")
        self.write(self.a, "vm1", c0="a", c1="b", c5="f")

    def died(self, what):
        if what.exc_type is not Killed:
            threading.__excepthook__(what)

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, "no space left on device")

    def commit(self, name="web", vm="vm1", node=None, **words):
        node = node or self.a
        self.begin(name, vm, node, **words)
        return self.ended(name, node)

    def begin(self, name="web", vm="vm1", node=None, **words):
        node = node or self.a
        with node.process.here():
            return node.commits.commit(vm, name, **words)

    def ended(self, name="web", node=None):
        node = node or self.a
        self.await_(
            lambda: (
                node.commits.show(name).state in ("kept", "failed")
                and not node.commits._threads.get(name)
            ),
            lambda: node.commits.show(name),
        )
        return node.commits.show(name)

    def remove(self, name="web", node=None):
        node = node or self.a
        with node.process.here():
            return node.commits.remove(name)

    def restart(self, node, reboot=False):
        super().restart(node, reboot)
        with node.process.here():
            node.commits.start()

    def read(self, node, vm, chunks=8, image="debian"):
        name = f"virtman_{image}_vm_{vm}"
        with node.kernel.lock:
            return "".join(node.kernel.read(name, chunk) or "." for chunk in range(chunks))

    def known(self, name="web"):
        return self.bed.operator().image(name)

    def files(self, node=None):
        folder = (node or self.a).folder / "layers"
        return sorted(path.name for path in folder.iterdir())

    def assert_kept(self, name="web", node=None, context=None):
        self.assertEqual("kept", self.ended(name, node).state, context)
        self.known(name)
        self.assertEqual([f"{name}.hashes", f"{name}.json", f"{name}.layer"], self.files(), context)
        self.assertNotIn(f"{name}.now", self.names(node or self.a), context)

    def assert_gone(self, name="web", context=None):
        self.assertRaises(ImageUnknown, self.known, name)
        self.assertEqual([], self.files(), context)
        self.assertNotIn(f"{name}.now", self.names(self.a), context)
        self.assertFalse([one for one in self.a.kernel.targets() if name in one.iqn], context)


class CommitTest(CommitCase):
    def test_a_running_vm_becomes_a_layer_of_the_moment_and_goes_on(self):
        self.begin()
        self.write(self.a, "vm1", c1="x", c2="y")
        self.ended()
        self.assert_kept()
        self.assertEqual("axy..f..", self.read(self.a, "vm1"))
        self.b.create("vm2", "web")
        self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"))
        self.assertEqual(SIZE, self.b.records.get("vm2").size)

    def test_vms_of_a_layer_write_for_themselves_on_any_node(self):
        self.commit()
        for node, vm in ((self.a, "vm2"), (self.b, "vm3"), (self.b, "vm4")):
            node.create(vm, "web")
            self.write_to(node, vm, c1=vm[-1])
        self.assertEqual("a2...f..", self.read(self.a, "vm2", image="web"))
        self.assertEqual("a3...f..", self.read(self.b, "vm3", image="web"))
        self.assertEqual("a4...f..", self.read(self.b, "vm4", image="web"))
        self.assertEqual("ab...f..", self.read(self.a, "vm1"))
        for node in (self.a, self.b):
            node.beat()
            with node.process.here():
                self.assertEqual([], list(Check(node.agent, lambda seconds: None).look()))

    def write_to(self, node, vm, image="web", **chunks):
        for chunk, text in chunks.items():
            node.kernel.write(f"virtman_{image}_vm_{vm}", int(chunk[1:]), text)

    def test_only_what_was_written_is_in_a_layer(self):
        self.assertEqual(layer_format.length(3), self.commit().length)
        self.a.create("vm2")
        self.assertEqual(layer_format.length(0), self.commit("empty", "vm2").length)
        self.b.create("vm3", "empty")
        self.assertEqual("........", self.read(self.b, "vm3", image="empty"))

    def test_a_layer_of_a_longer_disk_makes_longer_disks(self):
        with self.a.process.here():
            self.a.agent.resize("vm1", 2 * SIZE)
        self.write(self.a, "vm1", **{f"c{SIZE // CHUNK + 1}": "z"})
        self.commit()
        self.b.create("vm2", "web")
        self.assertEqual(2 * SIZE, self.b.records.get("vm2").size)
        end = SIZE // CHUNK + 2
        self.assertEqual("z", self.read(self.b, "vm2", end, "web")[-1])
        self.assertRaises(InstanceSize, self.b.create, "vm3", "web", size=SIZE)

    def test_a_parent_goes_after_its_layer_and_its_vms(self):
        self.commit()
        self.a.destroy("vm1")
        self.b.create("vm2", "web")
        self.assertIn("debian", {one.info.name for one in self.b.agent.images.attachments()})
        self.assertRaises(DeviceBusy, self.b.drop, "debian")
        self.b.destroy("vm2")
        self.assertRaises(DeviceBusy, self.b.drop, "debian")
        self.b.drop("web")
        self.b.drop("debian")
        self.assertTrue(self.b.kernel.is_clean(), self.b.kernel.state())
        self.a.drop("debian")
        refused = self.assertRaises(ImageInUse, self.bed.operator().forget, "debian")
        self.assertIn("parent of layer web", str(refused))
        self.assertTrue(self.remove())
        self.assert_gone()
        self.bed.operator().forget("debian")

    def test_a_layer_and_its_parent_are_attached_side_by_side(self):
        self.commit()
        both, volt = threading.Barrier(2), self.b.agent.coordinator
        join = volt.join

        def together(image, portal):
            both.wait(DEADLINE)
            return join(image, portal)

        with fixtures.MockPatchObject(volt, "join", together):
            self.b.create("vm2", "web")
        self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"))

    def test_a_parent_whose_layer_cannot_be_attached_is_in_use_by_nobody(self):
        self.commit()
        login = self.b.kernel.iscsi.login

        def refused(ip, port, target, user, secret):
            if target.endswith(":web"):
                raise OSError(errno.EIO, "iscsiadm: status 19: target not found")
            login(ip, port, target, user, secret)

        with fixtures.MockPatchObject(self.b.kernel.iscsi, "login", refused):
            self.assertRaises(ParentUnreachable, self.b.create, "vm2", "web")
        self.await_(
            lambda: self.b.agent.images.moving() == set() and self.b.agent.images.attachments(),
            self.b.agent.images.attachments,
        )
        self.assertEqual(
            [("debian", set())],
            [(one.info.name, one.users) for one in self.b.agent.images.attachments()],
        )
        self.b.drop("debian")
        self.assertTrue(self.b.kernel.is_clean(), self.b.kernel.state())

    def test_three_layers_lie_on_each_other_and_a_fourth_takes_the_place_of_the_last(self):
        self.commit("l1")
        for number, node in ((2, self.b), (3, self.a), (4, self.b)):
            node.create(f"vm{number}", f"l{number - 1}")
            self.write_to(node, f"vm{number}", f"l{number - 1}", **{f"c{number}": str(number)})
            if number < 4:
                self.commit(f"l{number}", f"vm{number}", node)
        self.assertEqual("ab234f..", self.read(self.b, "vm4", image="l3"))
        self.write_to(self.b, "vm4", "l3", c0="z", c3="y")
        # made where l3 was not: its table comes through its trees
        made = self.commit("l4", "vm4", self.b)
        self.assertEqual(("l2", layer_format.length(3)), (made.commit.image, made.length))
        self.assertEqual("l2", self.known("l4").layer.parent)
        self.a.create("vm5", "l4")
        self.assertEqual("zb2y4f..", self.read(self.a, "vm5", image="l4"))
        for node in (self.b, self.a):
            self.restart(node, reboot=True)
        for node in (self.b, self.a):
            self.await_(lambda node=node: not node.recover())
        self.assertEqual("zb2y4f..", self.read(self.b, "vm4", image="l3"))
        self.assertEqual("zb2y4f..", self.read(self.a, "vm5", image="l4"))

    def test_a_vm_that_has_the_name_of_a_copy_later_stays(self):
        self.commit()
        self.a.create("web.now")
        self.restart(self.a)
        self.ended()
        self.assertEqual(["vm1", "web.now"], self.names(self.a))
        self.assertTrue(self.remove())
        self.assertEqual(["vm1", "web.now"], self.names(self.a))

    def test_layers_and_their_vms_are_there_again_after_a_reboot(self):
        self.commit()
        self.b.create("vm2", "web")
        for node in (self.a, self.b):
            self.restart(node, reboot=True)
        self.assert_kept()
        self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"))
        self.assertEqual([], self.b.recover())
        self.restart(self.b)
        self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"))

    def test_a_vm_of_a_layer_moves(self):
        self.commit()
        self.a.create("vm2", "web")
        self.write_to(self.a, "vm2", c7="g")
        self.a.migrate("vm2", "b")
        self.assertEqual("done", MoveCase.ended(self, "vm2").state)
        self.assertEqual("ab...f.g", self.read(self.b, "vm2", image="web"))

    def test_a_layer_of_another_image_than_has_the_name_now_is_refused(self):
        self.commit()
        described = layer_format.Description("debian", "other", SIZE)
        file = self.a.folder / "layers" / "web.layer"
        content = bytearray(file.read_bytes())
        content[:CHUNK] = layer_format.header(described)
        file.write_bytes(content)
        self.assertRaises(ImageMismatch, self.b.create, "vm2", "web")
        self.assertEqual([], self.names(self.b))
        self.b.drop("web")
        self.b.drop("debian")
        self.assertTrue(self.b.kernel.is_clean())

    def test_what_cannot_be_changes_nothing(self):
        self.commit()
        self.await_(lambda: len(self.a.chain("vm1")) == 1)
        self.await_(lambda: len(self.a.records.inventory().stores) == 1)
        self.a.kernel.held.add("/dev/mapper/virtman_debian_vm_vm1")
        before = self.a.everywhere()
        for error, name, vm, words in (
            (InstanceUnknown, "new", "nope", {}),
            (LayerExists, "web", "vm1", {"final": True}),
            (LayerExists, "web", "vm1", {"checkpoint": 1}),
            (LayerExists, "debian", "vm1", {}),
            (DeviceBusy, "new", "vm1", {"final": True}),
        ):
            self.assertRaises(error, self.begin, name, vm, **words)
            self.assertEqual(before, self.a.everywhere())
        self.assertRaises(LayerUnknown, self.remove, "new")
        self.a.create("new.now")
        self.assertRaises(InstanceExists, self.begin, "new")
        self.assertEqual(["new.now", "vm1"], self.names(self.a))
        self.assertNotIn("new.json", self.files())
        self.assertRaises(LayerUnknown, self.a.commits.show, "new")

    def test_a_commit_that_was_kept_may_be_repeated_and_stays_what_it_was(self):
        made = self.commit().commit.created_at
        self.write(self.a, "vm1", c7="later")
        again = self.begin()
        self.assertEqual(("kept", made), (again.state, again.commit.created_at))
        self.restart(self.a)
        self.assertEqual(made, self.begin().commit.created_at)
        self.assert_kept()
        self.a.create("vm2")
        self.assertRaises(LayerExists, self.begin, "web", "vm2")

    def test_a_final_commit_may_be_repeated_once_the_vm_is_gone(self):
        self.commit(final=True)
        self.await_(lambda: "vm1" not in self.names(self.a))
        self.assertEqual("web", self.begin(final=True).commit.name)
        self.assert_kept()
        self.a.create("vm2")
        self.assertRaises(LayerExists, self.begin, "web", "vm2", final=True)

    def test_a_layer_that_is_needed_may_stay_elsewhere_only(self):
        self.commit()
        self.b.create("vm2", "web")
        refused = self.assertRaises(CoordinatorRefused, self.leave)
        self.assertIn("no host has all of it", str(refused))
        self.assert_kept()
        self.say_whole()
        self.assertRaises(ImageInUse, self.remove)
        self.assertTrue(self.leave())
        self.assertEqual([], self.files())
        self.assertEqual("b", self.bed.volt.ground.images.show("web").home)
        self.assertFalse([one for one in self.a.kernel.targets() if "web" in one.iqn])
        self.assertRaises(LayerUnknown, self.leave)

    def test_a_layer_that_was_leaving_when_the_agent_died_has_left(self):
        self.commit()
        self.b.create("vm2", "web")
        self.say_whole()
        with fixtures.MockPatchObject(Layers, "change", self.full):
            self.assertRaises(OSError, self.leave)
        self.assert_kept()
        with fixtures.MockPatchObject(Making, "clear_away", self.full):
            self.assertFalse(self.leave())
        self.restart(self.a)
        self.await_(lambda: not self.files(), self.files)
        self.assertEqual("b", self.bed.volt.ground.images.show("web").home)

    def say_whole(self):
        """Have Volt hear that a node has all of the layer; simulated disks do not give it back."""
        generation = self.b.agent.images.attached("web").generation
        report = Report({"web": ImageReport(generation, whole=True)})
        self.bed.volt.ground.hosts.heartbeat("b", report)

    def leave(self):
        with self.a.process.here():
            return self.a.commits.remove("web", elsewhere=True)

    def test_a_layer_that_a_vm_needs_stays(self):
        self.commit()
        self.b.create("vm2", "web")
        self.assertRaises(ImageInUse, self.remove)
        self.assert_kept()
        self.b.destroy("vm2")
        self.b.drop("web")
        self.b.beat()
        self.assertTrue(self.remove())
        self.assert_gone()


class EndTest(CommitCase):
    def test_the_vm_goes_once_its_layer_is_kept(self):
        self.assertEqual("", self.commit(final=True).note)
        self.assert_kept()
        self.assertEqual([], self.names(self.a))
        self.assertEqual([], self.stores(self.a))
        self.a.create("vm2", "web")
        self.assertEqual("ab...f..", self.read(self.a, "vm2", image="web"))

    def test_a_vm_that_was_used_again_stays(self):
        self.useFixture(fixtures.MockPatchObject(Making, "_write", self.used(Making._write)))
        self.assertIn("used again", self.commit(final=True).note)
        self.assert_kept()
        self.assertEqual("abz..f..", self.read(self.a, "vm1"))

    def used(self, copy):
        def used(making, commit, tell):
            self.write(self.a, "vm1", c2="z")
            return copy(making, commit, tell)

        return used


class FailureTest(CommitCase):
    def test_a_commit_without_space_leaves_nothing(self):
        space = self.a.agent.stores.space
        self.useFixture(fixtures.MockPatchObject(type(space), "spare", lambda *_: CHUNK))
        status = self.commit()
        self.assertEqual(("failed", NoSpace.code), (status.state, status.code))
        self.await_(lambda: not self.files())
        self.assert_gone()
        self.assertEqual("ab...f..", self.read(self.a, "vm1"))

    def test_a_commit_waits_for_volt(self):
        silent = threading.Event()
        serves = Making.serve

        def serve(making, commit):
            if not silent.is_set():
                self.bed.volt.silence()
                silent.set()
            return serves(making, commit)

        self.useFixture(fixtures.MockPatchObject(Making, "serve", serve))
        self.begin()
        self.await_(lambda: "Volt does not answer" in self.a.commits.show("web").note)
        self.bed.volt.silence(False)
        self.assertEqual("", self.ended().note)
        self.assert_kept()

    def test_a_commit_that_is_given_up_leaves_nothing(self):
        reached, go_on = threading.Event(), threading.Event()
        copy = Making._write

        def held(making, commit, tell):
            reached.set()
            go_on.wait(DEADLINE)
            return copy(making, commit, tell)

        self.useFixture(fixtures.MockPatchObject(Making, "_write", held))
        self.begin()
        self.assertTrue(reached.wait(DEADLINE))
        threading.Timer(0.1, go_on.set).start()
        self.assertTrue(self.remove())
        self.assert_gone()
        self.assertRaises(LayerUnknown, self.a.commits.show, "web")
        self.assertEqual(["vm1"], self.names(self.a))

    def test_who_removes_a_layer_that_another_one_removes_hears_that_it_is_gone(self):
        self.commit()
        forget, others = Making.forget_at_volt, [self.remove]

        def raced(making, commit, elsewhere=False):
            forget(making, commit, elsewhere)
            if others:
                self.assertTrue(others.pop()())

        self.useFixture(fixtures.MockPatchObject(Making, "forget_at_volt", raced))
        self.assertRaises(LayerUnknown, self.remove)
        self.assert_gone()

    def test_a_name_that_another_node_took_meanwhile_is_refused(self):
        self.commit()
        self.b.create("vm2")
        self.useFixture(fixtures.MockPatchObject(Commits, "_check_free", lambda *_: None))
        status = self.commit("web", "vm2", self.b)
        self.assertEqual("failed", status.state)
        self.assertIn("volt.image.exists", status.note)
        self.assertEqual([], self.files(self.b))
        self.assertEqual(["vm2"], self.names(self.b))
        self.assert_kept()

    def test_what_failed_may_be_tried_again(self):
        full = fixtures.MockPatchObject(Layers, "making", self.full)
        with full:
            self.assertEqual("failed", self.commit().state)
        self.assertEqual(["web"], [one.commit.name for one in self.a.commits.all()])
        self.commit()
        self.assert_kept()


class KillTest(CommitCase):
    def test_an_agent_that_dies_at_any_root_verb_of_a_commit_goes_on_or_leaves_nothing(self):
        for step in range(1, ENOUGH):
            self.a.process.fate(kill_at=step)
            with contextlib.suppress(Killed):
                self.begin()
                self.await_(lambda: not self.a.commits._threads or self.a.process.dead)
            died = self.a.process.fired
            self.a.process.fate()
            if not died:
                break
            self.restart(self.a)
            self.await_(lambda: not self.a.commits._threads)
            if self.files():
                self.assert_kept(context=(step, died))
                if step % 10 == 0:
                    self.b.create("vm2", "web")
                    found = self.read(self.b, "vm2", image="web")
                    self.assertEqual("ab...f..", found, (step, died))
                    self.b.destroy("vm2")
                    self.b.drop("web")
                    self.b.beat()
                self.assertTrue(self.remove(), (step, died))
            self.await_(lambda: not self.files())
            self.assert_gone(context=(step, died))
            self.assertEqual("ab...f..", self.read(self.a, "vm1"), (step, died))
            self.assertEqual(["vm1"], self.names(self.a))
            self.a.merge("vm1")
        self.assertGreater(step, 10)
        self.assert_kept()

    def test_an_agent_that_dies_at_any_root_verb_of_a_create_leaves_nothing_or_a_vm(self):
        self.commit()
        for step in range(1, ENOUGH):
            with self.b.process.here():  # what dies as an image is attached others test
                for image in ("debian", "web"):
                    self.b.agent.images.attach(image, "(test)")
            self.b.settle()
            self.b.process.fate(kill_at=step)
            with contextlib.suppress(Killed):
                self.b.create("vm2", "web")
                self.b.settle()
            died = self.b.process.fired
            self.b.process.fate()
            if not died:
                break
            self.restart(self.b)
            if "vm2" not in self.names(self.b):
                self.b.create("vm2", "web")
            self.assertEqual("ab...f..", self.read(self.b, "vm2", image="web"), (step, died))
            self.b.destroy("vm2")
            self.b.drop("web")
            self.b.drop("debian")
            self.assertTrue(self.b.kernel.is_clean(), (step, died, self.b.kernel.state()))
        self.assertGreater(step, 5)

    def test_an_agent_that_dies_as_a_layer_goes_has_it_go(self):
        deaths = []
        for step in range(1, ENOUGH):
            self.commit()
            self.await_(lambda: not self.a.commits._threads)
            self.a.merge("vm1")  # which has verbs too
            self.a.process.fate(kill_at=step)
            with contextlib.suppress(Killed):
                self.remove()
            died = self.a.process.fired
            self.a.process.fate()
            if not died:
                break
            deaths.append(died)
            self.restart(self.a)
            self.await_(lambda: not self.files() or self.a.commits.show("web").state == "kept")
            if self.files():
                self.remove()
            self.assert_gone(context=(step, died))
        self.assertEqual(["withdraw", "withdraw"], deaths)  # the image's disk, and its leaves'
