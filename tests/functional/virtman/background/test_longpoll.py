"""A host hears at once where it is placed, and tells at once whose answers are missing."""

import contextlib
import itertools
import threading
from dataclasses import replace

import fixtures

from tests.functional.virtman.image.test_placement import PlacementCase
from virtman.background import longpoll
from virtman.background.liveness import Pulse
from virtman.background.longpoll import Watch
from virtman.errors import ParentUnreachable
from virtman.model.address import Portal, iqn
from virtman.model.placement import Feed, Parent
from virtman.stack.transport import transport


class WatchCase(PlacementCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(longpoll, "_FIRST_BACKOFF", 0.02))
        self.useFixture(fixtures.MockPatchObject(longpoll, "_WAIT", 1.0))

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
        one.watch = Watch(one.agent.images, one.heartbeat, one.warmups.ask, called=True)
        asked = itertools.count()
        fetch = one.watch.fetch
        one.watch.fetch = lambda wait: (next(asked), fetch(wait))
        self.useFixture(fixtures.MockPatchObject(longpoll, "_WAIT", 60.0))
        self.watched(one)
        self.await_(lambda: repr(asked) == "count(1)")
        self.bed.volt.forget("debian", "b")
        one.watch.call()
        self.await_(lambda: self.parents(one, 1) == ["source"])


class PulseTest(WatchCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.one, self.two = self.pair()
        self.pulse = Pulse(self.one.agent.images, lambda: self.now)

    def beat(self, seconds):
        """Let the pulse be felt, and Volt be told, after some time."""
        self.now += seconds
        with self.one.process.here():
            self.pulse.feel()
            self.pulse.tell()

    def sessions(self):
        """What became of the sessions with node b: whether they are cut, and their patience."""
        key = iqn("b", "debian")
        return [(s.is_cut, s.patience) for s in self.one.kernel.sessions if s.key[2] == key]

    def test_a_parent_whose_answers_are_missing_is_reported_once(self):
        key = (self.two.ip, 3260, iqn("b", "debian"))
        target = self.bed.network.targets.pop(key)
        self.beat(1)
        self.beat(1)
        self.assertEqual(1, self.log.output.count("b does not answer; Volt: "))
        self.bed.network.targets[key] = target
        self.beat(1)
        del self.bed.network.targets[key]
        self.beat(1)
        self.assertEqual(2, self.log.output.count("b does not answer; Volt: "))

    def test_a_volt_that_is_away_is_told_later(self):
        del self.bed.network.targets[self.two.ip, 3260, iqn("b", "debian")]
        self.bed.volt.silence()
        with self.one.process.here():
            self.assertLess(self.pulse.feel(), self.pulse.tell())
            self.bed.volt.silence(False)
            self.pulse.tell()
        self.assertEqual(1, self.log.output.count("b does not answer; Volt: "))

    def test_a_parent_whose_kernel_is_silent_for_a_second_is_given_up_at_once(self):
        peer = (self.two.ip, 3260)
        self.bed.network.silent.add(peer)
        for _ in range(3):
            self.beat(0.4)
            self.assertEqual([(False, 2)], self.sessions())
        self.beat(0.2)
        self.assertEqual([(True, 0)], self.sessions())
        self.assertEqual(1, self.log.output.count("b does not answer; Volt: "))
        self.bed.network.silent.clear()
        (session,) = (s for s in self.one.kernel.sessions if s.key[:2] == peer)
        session.is_cut = False
        self.beat(0.1)
        self.assertEqual([(False, 2)], self.sessions())

    def get_stuck(self, *nodes):
        """Have nodes answer the reads of node a no more, some time after it was connected."""
        self.beat(0.1)
        self.now += 10
        for node in nodes:
            self.bed.network.stuck.add((node.ip, 3260, iqn(node.name, "debian")))
        self.beat(0.1)

    def test_a_parent_that_answers_no_reads_is_given_up_for_the_standby(self):
        self.get_stuck(self.two)
        self.beat(1.9)
        self.assertEqual([(False, 2)], self.sessions())
        self.beat(0.2)
        self.assertEqual([(True, 0)], self.sessions())
        self.assertIn("b answers no reads", self.log.output)
        self.bed.network.stuck.clear()
        (session,) = (s for s in self.one.kernel.sessions if s.key[0] == self.two.ip)
        session.is_cut = False
        self.beat(0.1)
        self.assertEqual([(False, 2)], self.sessions())
        self.await_(lambda: set(self.one.kernel.path_states("virtman_debian_s1").values()) == {"A"})

    def test_it_is_given_up_for_a_standby_whose_devices_are_not_there_yet(self):
        with self.one.process.here():
            found = transport.paths("debian")
        own = {device: portal for device, portal in found.items() if device.argument == "b"}
        self.assertNotEqual(own, found)
        self.useFixture(fixtures.MockPatchObject(transport, "paths", lambda _: own))
        self.get_stuck(self.two)
        self.beat(2.1)
        self.assertEqual([(True, 0)], self.sessions())

    def test_a_parent_that_is_stuck_is_not_used_again_before_it_lets_the_session_in(self):
        self.get_stuck(self.two)
        self.beat(2.1)
        before = list(map(id, self.one.kernel.sessions))
        for _ in range(3):
            self.one.beat()
            self.one.settle()
            self.beat(0.1)
        self.assertEqual(before, list(map(id, self.one.kernel.sessions)))
        self.assertEqual([(True, 0)], self.sessions())

    def placement(self, parent, standby=None):
        """Return a newer placement of node a, with another feed of stripe 1."""
        (image,) = self.one.agent.images.attachments()
        now = image._life.assembly.wanted.placement
        feeds = (now.feeds[0], Feed(parent, standby))
        return replace(now, feeds=feeds, generation=now.generation + 1)

    def away(self):
        """Return a host that does not answer."""
        return Parent("z", Portal("192.0.2.99", 3260, iqn("z", "debian"), 0, 1 << 20))

    def use(self, placement):
        """Let node a use a placement, whether it can or not."""
        (image,) = self.one.agent.images.attachments()
        with self.one.process.here(), contextlib.suppress(ParentUnreachable):
            image.use(placement)

    @contextlib.contextmanager
    def following(self, placement):
        """Let node a try meanwhile to use a placement that it cannot use."""
        goes_on, asked = threading.Event(), threading.Event()

        def ask(name):
            asked.set()
            goes_on.wait(5)
            raise ParentUnreachable("enough", "z")

        coordinator = self.one.agent.coordinator
        self.useFixture(fixtures.MockPatchObject(coordinator, "placement", ask))
        user = threading.Thread(target=self.use, args=(placement,))
        with self.one.process.here():
            user.start()
        try:
            asked.wait(5)
            yield
        finally:
            goes_on.set()
            user.join()

    def test_a_parent_of_before_is_given_up_while_the_new_one_does_not_answer(self):
        peer = (self.two.ip, 3260)
        with self.following(self.placement(self.away())):
            self.bed.network.silent.add(peer)
            self.beat(0.1)
            self.beat(1.1)
            self.assertEqual([(True, 0)], self.sessions())
            self.bed.network.silent.clear()
            (session,) = (s for s in self.one.kernel.sessions if s.key[:2] == peer)
            session.is_cut = False
            self.beat(0.1)
            self.assertEqual([(False, 2)], self.sessions())

    def test_a_parent_of_before_that_is_stuck_is_given_up_for_its_standby(self):
        with self.following(self.placement(self.away())):
            self.get_stuck(self.two)
            self.beat(2.1)
            self.assertEqual([(True, 0)], self.sessions())
            states = self.one.kernel.path_states("virtman_debian_s1")
            self.assertEqual(["F", "A"], list(states.values()))

    def cut_off(self):
        """Have node b stuck, and given up."""
        self.get_stuck(self.two)
        self.beat(2.1)
        self.one.settle()

    def let_in(self):
        """Have node b well again."""
        self.bed.network.stuck.clear()
        key = (self.two.ip, 3260, iqn("b", "debian"))
        (session,) = (s for s in self.one.kernel.sessions if s.key == key)
        session.is_cut = False

    def states(self, stripe=1):
        """States of the paths of a stripe, by host."""
        found = self.one.kernel.path_states(f"virtman_debian_s{stripe}")
        return {name.rpartition("_")[2]: state for name, state in found.items()}

    def told_ready(self):
        """Return a list that gets the states of stripe 1 whenever Volt is told of readiness."""
        seen = []
        double = fixtures.MockPatchObject(
            self.one.agent.coordinator, "ready", lambda *_: seen.append(self.states())
        )
        self.useFixture(double)
        return seen

    def test_reads_go_on_through_the_standby_while_a_placement_with_the_same_parent_comes(self):
        (image,) = self.one.agent.images.attachments()
        _, feed = image._life.assembly.wanted.placement.feeds
        self.cut_off()
        seen = self.told_ready()
        stripe = self.one.kernel.mappings["virtman_debian_s1"]
        before = stripe.reloads
        self.use(self.placement(feed.parent, feed.standby))
        self.assertEqual([{"b": "F", "source": "A"}], seen)
        self.assertEqual(before, stripe.reloads)
        self.assertEqual({"b": "F", "source": "A"}, self.states())

    def test_a_standby_of_before_is_kept_until_somebody_else_answers(self):
        (image,) = self.one.agent.images.attachments()
        parent = image._life.assembly.wanted.placement.feeds[1].parent
        placement = self.placement(parent, self.away())
        self.cut_off()
        seen = self.told_ready()
        image._life._times = replace(image.times, attach=0)
        self.use(placement)
        self.assertEqual([], seen)
        self.assertEqual({"b": "F", "source": "A"}, self.states())
        self.let_in()
        self.use(placement)
        self.assertEqual([{"b": "A"}], seen)
        self.assertNotIn("virtman_debian_path1_source", self.one.kernel.mappings)

    def test_a_parent_that_is_cut_off_gets_more_stripes_once_it_is_back(self):
        (image,) = self.one.agent.images.attachments()
        now = image._life.assembly.wanted.placement
        feeds = (Feed(now.feeds[1].parent, now.feeds[0].parent), now.feeds[1])
        placement = replace(now, feeds=feeds, generation=now.generation + 1)
        self.cut_off()
        seen = self.told_ready()
        self.use(placement)
        self.assertEqual(([], {"source": "A"}), (seen, self.states(0)))
        self.assertEqual({"b": "F", "source": "A"}, self.states())
        self.let_in()
        self.use(placement)
        self.assertEqual(["b", "source"], list(self.states(0)))
        self.assertEqual(1, len(seen))

    def with_other(self):
        """Let both nodes have another image too, which they read from each other."""
        self.bed.register("other")
        for node in (self.one, self.two):
            node.create("vm2", "other")
        self.settle(self.one, self.two)

    def cut(self):
        """Images whose sessions with node b are cut."""
        mine = (one for one in self.one.kernel.sessions if one.key[0] == self.two.ip)
        return {one.key[2].rpartition(":")[2]: (one.is_cut, one.patience) for one in mine}

    def test_a_parent_that_is_stuck_with_one_image_is_kept_for_others(self):
        self.with_other()
        self.get_stuck(self.two)
        self.beat(2.1)
        self.assertEqual({"debian": (True, 0), "other": (False, 2)}, self.cut())
        self.let_in()
        self.beat(0.1)
        self.assertEqual({"debian": (False, 2), "other": (False, 2)}, self.cut())

    def test_a_parent_whose_kernel_is_silent_is_given_up_with_all_images(self):
        self.with_other()
        self.bed.network.silent.add((self.two.ip, 3260))
        self.beat(0.1)
        self.beat(1.1)
        self.assertEqual({"debian": (True, 0), "other": (True, 0)}, self.cut())
        self.bed.network.silent.clear()
        for session in self.one.kernel.sessions:
            session.is_cut = False
        self.beat(0.1)
        self.assertEqual({"debian": (False, 2), "other": (False, 2)}, self.cut())

    def test_a_parent_that_is_stuck_is_kept_where_there_is_no_other(self):
        self.bed.source_dies()
        self.get_stuck(self.two)
        self.beat(60)
        self.assertEqual([(False, 2)], self.sessions())

    def test_a_parent_that_acknowledges_now_and_then_is_kept(self):
        for _ in range(4):
            self.bed.network.silent.add((self.two.ip, 3260))
            self.beat(0.6)
            self.beat(0.6)
            self.bed.network.silent.clear()
            self.beat(0.1)
        self.assertEqual([(False, 2)], self.sessions())

    def test_the_source_is_reported_to_nobody(self):
        self.bed.source_dies()
        self.beat(1)
        self.assertNotIn("Volt: ", self.log.output)
