"""An agent or a nova-compute that dies in the middle, at each of its steps."""

import contextlib
import itertools
import threading
import time

from nova import context as nova_context
from nova.tests.functional.api import client

from tests.driver.nodes import Agent, NodesCase
from virtman.errors import AgentUnreachable

# What the driver asks an agent for.
_VERBS = {
    *("create", "show", "resize", "destroy", "list", "space"),
    *("await_image", "images", "warm"),
    *("migrate", "move", "finish_move", "await_move", "cancel_move"),
}


class Killed(BaseException):
    """The death of nova-compute, as far as one thread can die: nobody catches it."""


class Mortal:
    """An agent of which a request is the last one, or the last one of whoever asks.

    :ivar countdown: requests until then; None for never
    :ivar does_it: the last request is carried out, but nobody hears of it
    :ivar kills: who asks dies as well, instead of the agent
    """

    def __init__(self, agent):
        self.agent = agent
        self.countdown = None
        self.does_it = False
        self.kills = False
        self.is_dead = False
        self._guard = threading.Lock()

    def __getattr__(self, name):
        found = getattr(self.agent, name)
        if name not in _VERBS:
            return found

        def ask(*args, **kwargs):
            with self._guard:
                last = self.countdown == 0 and not self.is_dead
                if self.countdown is not None and self.countdown > 0:
                    self.countdown -= 1
            if self.is_dead:
                raise Killed if self.kills else AgentUnreachable("no answer")
            if not last:
                return found(*args, **kwargs)
            self.is_dead = True
            if self.does_it:
                found(*args, **kwargs)
            raise Killed if self.kills else AgentUnreachable("no answer")

        return ask

    def within(self, seconds):
        return self

    def die_after(self, requests, does_it, kills):
        self.countdown, self.does_it, self.kills = requests, does_it, kills

    @property
    def is_killed(self):
        """Whether who asks is dead, not the agent."""
        return self.is_dead and self.kills

    def revive(self):
        """Go on; tell whether it had died."""
        had, self.is_dead, self.countdown = self.is_dead, False, None
        return had


class KillsCase(NodesCase):
    """Each operation, again and again: somebody dies at one more request each time.

    :cvar hosts: that run
    :cvar victim: of these, the one where it dies
    :cvar kills: nova-compute dies, not the agent
    """

    hosts = ("a",)
    victim = "a"
    kills = False
    new_agent = Agent

    def setUp(self):
        super().setUp()
        self.agents = {name: Mortal(self.new_agent()) for name in ("a", "b")}
        for one in self.agents.values():
            one.agent.peers = {name: other.agent for name, other in self.agents.items()}
        for host in self.hosts:
            self.start_compute(host)
            self.computes[host].driver.disks.ready_timeout = 1
        self.agent = self.agents[self.victim]
        self.kind = self.flavor()

    def _setup_scheduler_service(self):
        # The fixtures report only once, and the scheduler reads this only as it starts.
        self.flags(service_down_time=3600)
        return super()._setup_scheduler_service()

    def each_step(self, begin, check, server=lambda: None):
        """Do something until nobody dies any more.

        :param server: makes a server for it
        :param begin: is given that, and returns the server that nova is busy with
        :param check: is given that, and whether somebody died
        """
        for does_it in (False, True):
            for step in itertools.count():
                before = server()
                self.agent.die_after(step, does_it, self.kills)
                found = self.over(begin(before))
                died = self.agent.revive()
                if died and self.kills:
                    self.start_nova_again(found)
                    found = self.over(found)
                check(found, died)
                self.forget(found)
                if not died:
                    break
            self.assertGreater(step, 1)

    def start_nova_again(self, server):
        self.restart_compute_service(self.victim)
        self.computes[self.victim].driver.disks.ready_timeout = 1

    def over(self, server):
        """Wait until nova does nothing with a server any more, or cannot; return it."""
        for _ in range(200):
            try:
                found = self.api.get_server(server["id"])
            except client.OpenStackApiNotFoundException:
                return server
            if self.agent.is_dead and self.kills:
                return found
            if not found["OS-EXT-STS:task_state"] and found["status"] != "BUILD":
                return found
            time.sleep(0.1)
        self.fail(f"nova is still busy with {found}")

    def forget(self, server):
        """Delete a server; nothing of it may be left."""
        with contextlib.suppress(client.OpenStackApiNotFoundException):
            self._delete_server(server)
        context = nova_context.get_admin_context()
        for host in self.hosts:
            self.computes[host].manager._run_pending_deletes(context)
            self.computes[host].driver.manage_image_cache(context, [])
        left = [one for agent in self.agents.values() for one in agent.vms.values()]
        # Such a copy goes by itself.
        self.assertEqual([], [one for one in left if not one["temporary"]])
        for agent in self.agents.values():
            agent.vms.clear()
            agent.moves.clear()

    def boot_here(self):
        return self.boot(flavor_id=self.kind, host="a")


class OneNodeKills:
    def test_create(self):
        def begin(_):
            return self.api.post_server({"server": self.body(flavor_id=self.kind)})

        def check(server, died):
            self.assertIn(server["status"], ("ACTIVE", "ERROR") if died else ("ACTIVE",), server)
            if server["status"] == "ACTIVE":
                self.assertEqual({self.disk(server)["device"]}, self.opened("a", server))

        self.each_step(begin, check)

    def test_image_of_a_server(self):
        def begin(server):
            self.api.post_server_action(server["id"], {"createImage": {"name": "one"}})
            return server

        def check(server, died):
            self.assertEqual("ACTIVE", server["status"])
            self.assertEqual({self.disk(server)["device"]}, self.opened("a", server))

        self.each_step(begin, check, self.boot_here)

    def test_delete(self):
        def begin(server):
            self.api.delete_server(server["id"])
            return server

        self.each_step(begin, lambda server, died: None, self.boot_here)


class AgentKillsTest(OneNodeKills, KillsCase):
    """The agent of a node dies."""


class NovaKillsTest(OneNodeKills, KillsCase):
    """The nova-compute of a node dies."""

    kills = True


class TwoNodeKills:
    hosts = ("a", "b")

    def test_resize(self):
        larger = self.flavor(disk=8)

        def begin(server):
            self.api.post_server_action(server["id"], {"resize": {"flavorRef": larger}})
            return server

        def check(server, died):
            """The server has the disk that it had, or can have it again."""
            self.assertIn(server["status"], ("ACTIVE", "VERIFY_RESIZE", "ERROR"))
            if server["status"] == "ERROR":
                self.assertTrue(died)
                if self.places(server) == ["b"]:
                    # Nobody heard that it went; the error says to do this.
                    self.agents["b"].migrate(server["id"], "a")
                    self.agents["b"].await_move(server["id"])
                self._reboot_server(server, hard=True)
            self.assertEqual(1, self.made(server))
            self.assertEqual("ready", self.disk(server)["state"])

        self.each_step(begin, check, self.boot_here)


class AgentOfTwoKillsTest(TwoNodeKills, KillsCase):
    """The agent of the node from which a server goes dies."""


class NovaOfTwoKillsTest(TwoNodeKills, KillsCase):
    """The nova-compute of the node from which a server goes dies."""

    kills = True


class RevertKills:
    """Whoever dies, the server has its one disk, or can have it again where nova says it is."""

    hosts = ("a", "b")
    victim = "b"

    def test_revert(self):
        larger = self.flavor(disk=8)

        def resized():
            server = self.boot_here()
            return self._resize_server(server, larger)

        def begin(server):
            self.api.post_server_action(server["id"], {"revertResize": None})
            return server

        def check(server, died):
            self.assertIn(server["status"], ("ACTIVE", "ERROR") if died else ("ACTIVE",))
            if server["status"] == "ERROR":
                host = self.instance(server).host
                (place,) = self.places(server)
                if place != host:
                    # Nobody heard that it went; the error says to do this.
                    self.agents[place].migrate(server["id"], host)
                    self.agents[place].await_move(server["id"])
                self._reboot_server(server, hard=True)
            self.assertEqual([self.instance(server).host], self.places(server))
            self.assertEqual(1, self.made(server))
            self.assertEqual("ready", self.disk(server)["state"])

        self.each_step(begin, check, resized)


class AgentOfRevertKillsTest(RevertKills, KillsCase):
    """The agent of the node from which a server goes back dies."""


class NovaOfRevertKillsTest(RevertKills, KillsCase):
    """The nova-compute of that node dies: it leaves any such server as it is, for an operator."""

    kills = True

    def start_nova_again(self, server):
        super().start_nova_again(server)
        self.api.post_server_action(server["id"], {"os-resetState": {"state": "error"}})
