"""What if nova-compute, or the keeper, dies right here? Killed at each call, and started anew."""

import testtools

from tests.functional.virtman.openstack.doubles import FakeAgent, FakeCinderClient, FakeTime
from tests.unit.virtman.openstack.test_keeper import FakeInitiator, FakeSources
from virtman.openstack.cinder import Cinder
from virtman.openstack.disks import DiskLost, Disks
from virtman.openstack.golden import Goldens, holder_of
from virtman.openstack.keeper import Keeper

IMAGE = "snapshot-0c0ffee0-1111-2222-3333-444455556666"
MINE, OTHER = holder_of("node1"), holder_of("node2")
ALWAYS = 10**6


class Killed(BaseException):
    """The process is no more; nothing that it would clean up happens."""


class Life:
    """A process that lives for so many calls.

    :param after: whether the last call still reaches the other side
    """

    def __init__(self, calls=ALWAYS, after=False):
        self.left = calls
        self.after = after

    def wrap(self, other):
        return _Wrapped(other, self)

    def call(self, function, *arguments, **settings):
        self.left -= 1
        if self.left < 0:
            if self.left == -1 and self.after:
                function(*arguments, **settings)
            raise Killed
        return function(*arguments, **settings)


class _Wrapped:
    def __init__(self, other, life):
        self._other, self._life = other, life

    def __getattr__(self, name):
        found = getattr(self._other, name)
        if not callable(found):
            return self._life.wrap(found)
        return lambda *arguments, **settings: self._life.call(found, *arguments, **settings)


class World(testtools.TestCase):
    """Cinder, an agent, and a keeper with what is below it; processes come and go."""

    def begin(self):
        self.time = FakeTime()
        self.client = FakeCinderClient(polls=1)
        self.agent = FakeAgent()
        self.other = self.agent.peers["node2"] = FakeAgent()
        self.sources = FakeSources()
        self.initiator = FakeInitiator()

    def disks(self, life):
        clock = (self.time.now, self.time.pause)
        client, agent = life.wrap(self.client), life.wrap(self.agent)
        goldens = Goldens(lambda: Cinder(client), "virtman", "node1", 60, *clock)
        return Disks(agent, goldens, 30, 30, *clock)

    def keeper(self, life):
        parts = (self.client, self.sources, self.initiator)
        client, sources, initiator = map(life.wrap, parts)
        return Keeper(Cinder(client), sources, initiator, "store", 100, self.time.now)

    def at_each_call(self, use, check):
        """Kill ``use(life)`` at each of its calls, before and after it, and check what it left."""
        for after in (False, True):
            for calls in range(ALWAYS):
                self.begin()
                try:
                    use(Life(calls, after))
                except Killed:
                    check()
                else:
                    break
            self.assertGreater(calls, 4)
        check()

    def rounds(self, number=6):
        keeper = self.keeper(Life())
        for _ in range(number):
            keeper.tend()
            self.time.seconds += 101

    def assert_disks_are_held(self):
        for agent, holder in ((self.agent, MINE), (self.other, OTHER)):
            if agent.vms:
                holders = self.client.holders().values()
                self.assertTrue(any(holder in one for one in holders), holders)

    def assert_nothing_is_left(self):
        left = (self.agent.vms, self.client.kept, self.sources.served, self.initiator.connected)
        self.assertEqual(({}, {}, {}, []), left)


class KilledComputeTest(World):
    def test_killed_while_it_makes_a_disk(self):
        self.at_each_call(self.create, self.check)

    def test_killed_while_it_takes_the_last_disk_away(self):
        def use(life):
            self.create(Life())
            self.disks(life).destroy("s1")

        self.at_each_call(use, self.check)

    def test_killed_while_it_sweeps(self):
        def use(life):
            self.create(Life())
            self.disks(life).sweep(lambda server: True)

        self.at_each_call(use, self.check)

    def test_killed_while_it_sends_a_disk_which_the_agent_goes_on_with(self):
        def check():
            for vm in list(self.agent.moves):
                self.agent.await_move(vm, lambda move: None)
            self.assertEqual(["s1"], [*self.agent.vms, *self.other.vms])
            self.assert_disks_are_held()
            self.disks(Life()).sweep(lambda server: False)
            self.assert_disks_are_held()

        self.at_each_call(self.move, check)
        self.assertEqual(["s1"], list(self.other.vms))

    def test_killed_while_it_sends_a_disk_which_it_wants_to_keep_then(self):
        def check():
            try:
                self.disks(Life()).path("s1")
            except DiskLost:
                self.assertEqual(["s1"], list(self.other.vms))
            else:
                self.assertEqual({}, self.agent.moves)
                self.assertEqual(({}, ["s1"]), (self.other.vms, list(self.agent.vms)))
            self.assert_disks_are_held()

        self.at_each_call(self.move, check)

    def move(self, life):
        self.create(Life())
        self.disks(life).move("s1", "node2")

    def create(self, life):
        self.disks(life).create("s1", IMAGE, 1)

    def check(self):
        """Disks are safe, and gone without a trace once nova has deleted their servers."""
        self.assert_disks_are_held()
        self.disks(Life()).sweep(lambda server: False)
        self.assert_disks_are_held()
        self.disks(Life()).sweep(lambda server: True)
        self.rounds()
        self.assert_nothing_is_left()


class KilledKeeperTest(World):
    def test_killed_while_it_begins_to_serve(self):
        def use(life):
            self.disks(Life()).create("s1", IMAGE, 1)
            self.keeper(life).tend()

        def check():
            self.rounds()
            self.assertEqual([IMAGE], list(self.sources.served))
            self.assertEqual(1, len(self.initiator.connected))
            self.assert_disks_are_held()

        self.at_each_call(use, check)

    def test_killed_while_it_gives_a_volume_back(self):
        def use(life):
            disks = self.disks(Life())
            disks.create("s1", IMAGE, 1)
            self.keeper(Life()).tend()
            disks.destroy("s1")
            keeper = self.keeper(life)
            keeper.tend()
            self.time.seconds += 101
            keeper.tend()

        def check():
            self.rounds()
            self.assert_nothing_is_left()

        self.at_each_call(use, check)
