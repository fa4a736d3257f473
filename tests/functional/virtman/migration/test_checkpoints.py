"""VMs are committed again and again; each time only what changed is read and written."""

import contextlib
import itertools
from dataclasses import replace
from unittest import mock

import fixtures

from tests.functional.virtman.base import ENOUGH
from tests.functional.virtman.doubles.model import CHUNK
from tests.functional.virtman.doubles.process import Killed
from tests.functional.virtman.migration.test_commits import CommitCase
from tests.functional.virtman.migration.test_moves import MoveCase
from virtman.disk.layers import Phase
from virtman.errors import CheckpointsUnknown, ImageUnknown, InstanceUnknown, InvalidRequest
from virtman.model import layer_format
from virtman.node.check import Check


class CheckpointCase(CommitCase):
    def make(self, vm="vm1", **words):
        """Have a checkpoint made; return its name."""
        with self.a.process.here():
            name = self.a.checkpoints.make(vm, **words).commit.name
        self.assertEqual("kept", self.ended(name).state, self.ended(name))
        self.look()
        return name

    def look(self):
        with self.a.process.here():
            self.a.checkpoints.look()

    def made(self, vm="vm1"):
        return [one.name for one in self.a.commits.layers.checkpoints(vm) if one.is_kept]

    def held(self):
        return sorted(self.a.records.inventory().snapshots)

    def holds(self, name):
        """Return the numbers of the chunks that a layer holds."""
        content = self.a.commits.layers.file(name).read_bytes()
        return list(layer_format.numbers(lambda start, length: content[start : start + length]))

    def parents(self):
        return {one.name: one.image for one in self.a.commits.layers.all()}

    def assert_has(self, text, name, node=None):
        """A VM that begins with a checkpoint has this."""
        node = node or self.b
        node.create("back", name)
        self.assertEqual(text, self.read(node, "back", image=name))
        node.destroy("back")
        while name in self.parents() and not node.agent.images.attached(name).users:
            node.drop(name)
            name = self.parents()[name]
        node.beat()


class CheckpointTest(CheckpointCase):
    def test_only_what_changed_since_the_last_is_in_a_checkpoint(self):
        self.assertEqual("vm1.1", self.make())
        self.assertEqual([0, 1, 5], self.holds("vm1.1"))
        self.write(self.a, "vm1", c1="x", c2="y")
        self.make()
        self.assertEqual([1, 2], self.holds("vm1.2"))
        self.assertEqual({"vm1.1": "debian", "vm1.2": "vm1.1"}, self.parents())
        self.make()
        self.assertEqual([], self.holds("vm1.3"))
        self.write(self.a, "vm1", c7="z")
        for name, text in (("vm1.1", "ab...f.."), ("vm1.2", "axy..f.."), ("vm1.3", "axy..f..")):
            self.assert_has(text, name)
        self.assertEqual("axy..f.z", self.read(self.a, "vm1"))
        self.assertEqual(["vm1.3_held"], self.held())
        self.assertEqual([], self.a.agent.snapshots())
        self.assertEqual(["vm1"], self.names(self.a))
        self.a.beat()
        with self.a.process.here():
            self.assertEqual([], list(Check(self.a.agent, lambda seconds: None).look()))

    def test_one_that_is_kept_just_now_is_held_for_the_next(self):
        self.make()
        self.write(self.a, "vm1", c1="x")
        with self.a.process.here():
            name = self.a.checkpoints.make("vm1").commit.name
            self.ended(name)
            layers = self.a.commits.layers
            first, last = after = layers.all()
            before = [first, replace(last, phase=Phase.MAKING)]
            looks = mock.Mock(side_effect=itertools.chain([before], itertools.repeat(after)))
            with fixtures.MockPatchObject(layers, "all", looks):
                self.a.checkpoints._let_go()
        self.assertIn(f"{name}_held", self.held())
        self.write(self.a, "vm1", c7="z")
        self.assertEqual([7], self.holds(self.make()))

    def test_chains_stay_short_and_hardly_ever_all_is_written_again(self):
        self.write(self.a, "vm1", **{f"c{number}": "0" for number in range(40)})
        written = []
        for turn in range(12):
            name = self.make(keep=2)
            written.append(len(self.holds(name)))
            depth, image = 0, name
            while image != "debian":
                depth, image = depth + 1, self.parents()[image]
            self.assertLessEqual(depth, 3)
            self.write(self.a, "vm1", **{f"c{turn}": f"t{turn}", "c39": f"t{turn}"})
        self.assertEqual(40, written[0])
        self.assertEqual(2, written[1])
        self.assertLess(max(written[1:]), 20, written)
        self.assertLessEqual(len(self.parents()), 4)
        self.assertEqual(name, self.made()[-1])
        before = [f"t{turn}" for turn in range(11)] + ["0"] * 28 + ["t10"]
        self.b.create("back", name)
        with self.b.kernel.lock:
            found = [self.b.kernel.read(f"virtman_{name}_vm_back", n) for n in range(40)]
        self.assertEqual(before, found)

    def test_what_a_rollback_took_back_is_as_it_was_in_the_next_checkpoint(self):
        self.a.snapshot("vm1", "mine")
        self.write(self.a, "vm1", c0="x", c3="y")
        self.make()
        self.a.rollback("vm1", "mine")
        self.write(self.a, "vm1", c4="z")
        self.make()
        self.assertEqual([0, 3, 4], self.holds("vm1.2"))
        self.assert_has("ab..zf..", "vm1.2")
        self.assert_has("xb.y.f..", "vm1.1")

    def test_a_vm_of_three_layers_is_checkpointed_too(self):
        image = "debian"
        for number in (1, 2, 3):
            self.a.create(f"base{number}", image)
            self.a.kernel.write(f"virtman_{image}_vm_base{number}", number, str(number))
            image = f"l{number}"
            self.commit(image, f"base{number}")
        self.a.create("vm2", "l3")
        for number in (4, 5, 6):
            self.a.kernel.write("virtman_l3_vm_vm2", number, str(number))
            self.make("vm2")
        parents = self.parents()
        self.assertEqual(["l1", "vm2.1", "vm2.1"], [parents[f"vm2.{n}"] for n in (1, 2, 3)])
        self.assertEqual([[2, 3, 4], [5], [5, 6]], [self.holds(f"vm2.{n}") for n in (1, 2, 3)])
        self.assert_has(".123456.", "vm2.3")

    def test_those_beyond_the_latest_go_unless_somebody_needs_them(self):
        for turn in range(3):
            self.make(keep=1)
            self.write(self.a, "vm1", c6=str(turn))
        self.assertEqual(["vm1.1", "vm1.2", "vm1.3"], self.made())  # they lie on each other
        self.make()
        # the fourth took the place of the two before it
        self.assertEqual(["vm1.1", "vm1.4"], self.made())
        self.assertRaises(ImageUnknown, self.known, "vm1.2")
        self.b.create("back", "vm1.4")
        for turn in range(3, 6):
            self.write(self.a, "vm1", c6=str(turn))
            self.make()
        self.assertIn("vm1.4", self.made())
        self.assertEqual("ab...f2.", self.read(self.b, "back", image="vm1.4"))

    def test_one_that_somebody_needed_goes_soon_after_nobody_does(self):
        for turn in range(3):
            self.make(keep=1)
            self.write(self.a, "vm1", c6=str(turn))
        self.b.create("back", "vm1.3")
        self.make()
        self.assertEqual(["vm1.1", "vm1.2", "vm1.3", "vm1.4"], self.made())
        self.b.destroy("back")
        for name in ("vm1.3", "vm1.2", "vm1.1"):
            self.b.drop(name)
        self.b.beat()
        self.look()
        self.assertEqual(["vm1.1", "vm1.4"], self.made())

    def test_they_are_made_by_schedule_until_they_are_stopped(self):
        now = [self.a.commits.layers.checkpoints("vm1")]
        self.make(every=600)
        begin = self.a.checkpoints._clock()
        self.a.checkpoints._clock = lambda: begin + now[0]
        for now[0], count in ((0, 1), (598, 1), (601, 2), (1100, 2), (1202, 3), (-9999, 4)):
            self.look()
            self.await_(lambda count=count: len(self.made()) == count, self.made)
            self.look()
            self.assertEqual(count, len(self.made()), now)
        (shown,) = self.a.checkpoints.all()
        self.assertEqual((600, 3, ""), (shown.schedule.every, shown.schedule.keep, shown.note))
        self.assertEqual(self.made(), [one.name for one in shown.layers])
        with self.a.process.here():
            self.a.checkpoints.end("vm1")
        self.assertEqual([], self.held())
        now[0] = 99999
        self.look()
        self.assertEqual(4, len(self.a.commits.all()))
        self.assertRaises(CheckpointsUnknown, self.a.checkpoints.end, "vm1")
        self.assert_has("ab...f..", self.made()[-1])

    def test_the_next_one_after_a_reboot_has_only_what_changed(self):
        self.make(every=600)
        self.restart(self.a, reboot=True)
        self.look()
        self.await_(lambda: not self.a.commits._threads)
        self.write(self.a, "vm1", c6="g")
        self.assertEqual(["vm1.1"], self.made())
        self.make()
        self.assertEqual([6], self.holds("vm1.2"))
        self.assert_has("ab...fg.", "vm1.2")

    def test_they_end_with_the_vm_and_stay_to_go_back_to(self):
        self.make(every=600)
        self.a.destroy("vm1")
        self.look()
        self.assertEqual((), tuple(self.a.checkpoints.all()))
        self.assertEqual([], self.held())
        self.assertEqual([], self.stores(self.a))
        self.assertEqual([], list((self.a.folder / "checkpoints").iterdir()))
        self.assert_has("ab...f..", "vm1.1", self.a)

    def test_they_end_where_a_vm_moves_away_and_are_begun_anew_where_it_is(self):
        self.make(every=600)
        self.write(self.a, "vm1", c6="g")
        self.a.migrate("vm1", "b")
        self.assertEqual("done", MoveCase.ended(self).state)
        self.look()
        self.assertEqual(((), []), (tuple(self.a.checkpoints.all()), self.held()))
        with self.b.process.here():
            name = self.b.checkpoints.make("vm1").commit.name
        self.assertEqual(("vm1.2", "kept"), (name, self.ended(name, self.b).state))
        self.assertEqual("debian", self.known(name).layer.parent)
        self.a.create("back", name)
        self.assertEqual("ab...fg.", self.read(self.a, "back", image=name))

    def test_one_that_was_made_elsewhere_of_that_name_is_passed(self):
        self.make()
        self.b.create("vm1")
        with self.b.process.here():
            self.assertEqual("vm1.2", self.b.checkpoints.make("vm1").commit.name)
        self.assertEqual("kept", self.ended("vm1.2", self.b).state)

    def test_what_cannot_be_changes_nothing(self):
        before = self.a.everywhere()
        self.assertRaises(InstanceUnknown, self.a.checkpoints.make, "nope")
        self.assertRaises(InvalidRequest, self.a.checkpoints.make, "vm1", keep=0)
        self.assertRaises(CheckpointsUnknown, self.a.checkpoints.end, "vm1")
        self.assertEqual(before, self.a.everywhere())
        self.bed.volt.silence()
        with self.a.process.here(), contextlib.suppress(Exception):
            self.a.checkpoints.make("vm1", every=5)
        self.assertEqual((), tuple(self.a.checkpoints.all()))
        self.bed.volt.silence(False)

    def test_one_that_fails_is_told_and_the_next_has_what_it_lacks(self):
        self.make(every=600)
        self.write(self.a, "vm1", c6="g")
        space = type(self.a.agent.stores.space)
        spare, space.spare = space.spare, lambda *_: CHUNK
        try:
            with self.a.process.here():
                self.a.checkpoints.make("vm1")
            self.assertEqual("failed", self.ended("vm1.2").state)
        finally:
            space.spare = spare
        (shown,) = self.a.checkpoints.all()
        self.assertIn("bytes more", shown.note)
        self.await_(lambda: self.a.commits.layers.find("vm1.2") is None)
        self.make()
        self.assertEqual([6], self.holds("vm1.2"))
        self.assertEqual("", self.a.checkpoints.all()[0].note)


class KillTest(CheckpointCase):
    def test_an_agent_that_dies_at_any_root_verb_has_a_right_checkpoint_after_all(self):
        """The next agent ends what was begun, or nothing of it is left; then it goes on."""
        self.make()
        texts = {"vm1.1": "ab...f.."}
        for step in range(1, ENOUGH):
            mark = str(step % 10)
            self.write(self.a, "vm1", c3=mark)
            self.a.process.fate(kill_at=step)
            with contextlib.suppress(Killed), self.a.process.here():
                self.a.checkpoints.make("vm1")
                self.await_(lambda: not self.a.commits._threads or self.a.process.dead)
                self.a.checkpoints.look()
            died = self.a.process.fired
            self.a.process.fate()
            if not died:
                break
            self.restart(self.a)
            self.await_(lambda: not self.a.commits._threads)
            self.look()
            name = self.make()
            texts[name] = f"ab.{mark}.f.."
            self.assertLessEqual(len(self.holds(name)), 1, (step, died))
            self.assertEqual([f"{name}_held"], self.held(), (step, died))
            self.assertEqual(["vm1"], self.names(self.a), (step, died))
            self.assertLessEqual(len(self.made()), 5, (step, died))
            if step % 10 == 0:
                self.assert_has(texts[name], name)
        self.assertGreater(step, 10)
        self.assert_has(f"ab.{mark}.f..", self.made()[-1])
