"""A host hears at once where it is placed, and tells at once whose answers are missing."""

import itertools

import fixtures

from tests.functional.virtman.test_placement import PlacementCase
from virtman import watch
from virtman.naming import iqn
from virtman.pulse import Pulse
from virtman.watch import Watch


class WatchCase(PlacementCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(watch, "_FIRST_BACKOFF", 0.02))
        self.useFixture(fixtures.MockPatchObject(watch, "_WAIT", 1.0))

    def watched(self, node):
        """Let the node watch, but send no heartbeat."""
        with node.process.here():
            node.watch.start()
        self.addCleanup(node.watch.stop)
        return node


class WatchTest(WatchCase):
    def test_a_placement_comes_without_a_heartbeat(self):
        one, _ = self.pair()
        self.watched(one)
        self.bed.volt.forget("debian", "b")
        self.await_(lambda: self.parents(one, 1) == ["source"])

    def test_many_changes_are_all_followed(self):
        one, two = self.pair()
        self.watched(one)
        for parent in (["source"], ["b", "source"]) * 3:
            if parent == ["source"]:
                self.bed.volt.forget("debian", "b")
            else:
                two.beat()
            self.await_(lambda parent=parent: self.parents(one, 1) == parent)

    def test_a_volt_that_is_away_is_asked_seldom_and_watched_again_when_it_is_back(self):
        one, _ = self.pair()
        self.bed.volt.silence()
        self.watched(one)
        self.await_(lambda: self.log.output.count("watching: ") == 1)
        self.bed.volt.silence(False)
        self.bed.volt.forget("debian", "b")
        self.await_(lambda: self.parents(one, 1) == ["source"])
        self.assertEqual(1, self.log.output.count("watching: "))

    def test_a_place_that_was_lost_makes_the_next_heartbeat_come_at_once(self):
        node = self.bed.node()
        node.create("vm1")
        with node.process.here():
            node.heartbeat.start()
        self.addCleanup(node.heartbeat.stop)
        self.watched(node)
        self.bed.volt.forget("debian", "a")
        self.await_(lambda: self.bed.volt.hosts("debian") == {"a"})

    def test_a_host_that_is_called_asks_only_then(self):
        one, _ = self.pair()
        one.watch = Watch(one.agent, one.heartbeat, called=True)
        asked = itertools.count()
        fetch = one.watch.fetch
        one.watch.fetch = lambda wait: (next(asked), fetch(wait))
        self.useFixture(fixtures.MockPatchObject(watch, "_WAIT", 60.0))
        self.watched(one)
        self.await_(lambda: repr(asked) == "count(1)")
        self.bed.volt.forget("debian", "b")
        one.watch.call()
        self.await_(lambda: self.parents(one, 1) == ["source"])


class PulseTest(WatchCase):
    def test_a_parent_whose_answers_are_missing_is_reported_once(self):
        one, two = self.pair()
        pulse = Pulse(one.agent)
        key = (two.ip, 3260, iqn("b", "debian"))
        target = self.bed.network.targets.pop(key)
        with one.process.here():
            pulse.feel()
            pulse.feel()
            self.assertEqual(1, self.log.output.count("b does not answer; Volt: "))
            self.bed.network.targets[key] = target
            pulse.feel()
            del self.bed.network.targets[key]
            pulse.feel()
        self.assertEqual(2, self.log.output.count("b does not answer; Volt: "))

    def test_a_parent_whose_kernel_is_silent_is_given_up(self):
        one, two = self.pair()
        self.bed.network.silent.add((two.ip, 3260))
        with one.process.here():
            Pulse(one.agent).feel()
        self.assertIn("b does not answer; Volt: ", self.log.output)
        cut = [session.key[2] for session in one.kernel.sessions if session.is_cut]
        self.assertEqual([iqn("b", "debian")], cut)

    def test_the_source_is_reported_to_nobody(self):
        node = self.bed.node()
        node.create("vm1")
        self.bed.source_dies()
        with node.process.here():
            Pulse(node.agent).feel()
        self.assertNotIn("Volt: ", self.log.output)
