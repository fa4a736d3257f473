"""An agent or a nova-compute that dies while a server migrates live, at each of its steps.

libvirt goes on meanwhile, as it does. Guests and disks are looked at on both nodes.
"""

import contextlib
import functools
import itertools
import time

import fixtures
from nova import context as nova_context
from nova.compute import manager
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.api import client

from tests.driver.nodes import Agent
from tests.driver.test_kills import Killed, KillsCase, Mortal
from tests.driver.test_live import LiveNodesCase
from virtman.errors import PeerUnreachable
from virtman.openstack import live_driver

_OFF, _RUNNING = fakelibvirt.VIR_DOMAIN_SHUTOFF, fakelibvirt.VIR_DOMAIN_RUNNING
_ENDED = ("cancelled", "completed", "error", "failed")
# What one nova-compute does when the other one, or libvirt, says so.
_CALLED = (
    "_get_power_state",
    "_post_live_migration_update_host",
    "_rollback_live_migration",
    "pre_live_migration",
    "post_live_migration_at_destination",
    "rollback_live_migration_at_destination",
)


class Sender(Agent):
    """An agent that hears nothing while that of the other node is dead.

    :ivar is_silent: tells whether that one is
    """

    def __init__(self, is_silent):
        super().__init__()
        self.is_silent = is_silent

    def migrate(self, vm, host, live=False):
        if self.is_silent(host):
            raise PeerUnreachable(host)
        super().migrate(vm, host, live)

    def move(self, vm):
        found = super().move(vm)
        silent = found["state"] == "ready" and self.is_silent(found["host"])
        return found | {"state": "sending"} if silent else found

    def await_move(self, vm, show=lambda move: None, ready=False):
        while vm in self.moves and self.is_silent(self.moves[vm]):
            time.sleep(0.1)
        return super().await_move(vm, show, ready)


class LiveKillsCase(LiveNodesCase, KillsCase):
    """A server that goes from ``a`` to ``b``, again and again.

    :cvar victim: the node whose agent dies, or whose nova-compute
    :cvar silence: seconds until a dead agent is started again
    :cvar forgets: libvirt's daemon dies as well, and does not know any more that a guest has left
    :ivar patient: the memory is not sent before somebody tells libvirt to stop
    """

    hosts = ("a", "b")
    victim = "a"
    silence = 1.5
    forgets = False
    patient = False

    def new_agent(self):
        return Sender(lambda host: self.agents[host].is_dead and not self.kills)

    def setUp(self):
        super().setUp()
        self.flags(rpc_response_timeout=8, long_rpc_timeout=8)
        self.useFixture(
            fixtures.MonkeyPatch(
                "nova.tests.fixtures.libvirt.Domain.state",
                lambda domain, flags=0: [domain._state, getattr(domain, "reason", 0)],
            )
        )
        for name in _CALLED:
            self.dies_with_its_node(manager.ComputeManager, name, lambda one: one.driver.agent)
        self.dies_with_its_node(live_driver.Departure, "get_job_info", lambda one: one.live.agent)
        self.sending, self.stopped = set(), set()

        def stop(domain):
            self.stopped.add(domain.UUIDString())
            domain.fail_job()

        self.useFixture(fixtures.MockPatchObject(fakelibvirt.Domain, "abortJob", stop))
        self.libvirt_does(self.send_memory)
        self.connection_there = self.driver_there._host.get_connection()

    def dies_with_its_node(self, owner, name, agent_of):
        method = getattr(owner, name)

        @functools.wraps(method)
        def call(one, *args, **kwargs):
            if agent_of(one).is_killed:
                raise Killed
            return method(one, *args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(owner, name, call))

    def send_memory(self, domain, params, flags):
        """Do what libvirt does, whoever dies meanwhile."""
        connection = self.connection_there
        domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_UNBOUNDED
        self.sending.add(domain.UUIDString())
        for _ in range(100 if self.patient else 6):
            time.sleep(0.1)
            if domain.UUIDString() in self.stopped:
                raise fakelibvirt.make_libvirtError(
                    fakelibvirt.libvirtError,
                    "aborted",
                    error_code=fakelibvirt.VIR_ERR_OPERATION_FAILED,
                )
        connection.createXML(params["destination_xml"], 0)
        connection.lookupByUUIDString(domain.UUIDString()).suspend()
        domain.destroy()
        if not self.forgets:
            domain.reason = fakelibvirt.VIR_DOMAIN_SHUTOFF_MIGRATED
        domain.complete_job()

    def each_step(self, begin, meanwhile=lambda server: None, does_it=False):
        """Have a server migrate until nobody dies any more.

        :param begin: begins that
        :param meanwhile: is done again and again until it is over
        :param does_it: the last request is carried out, but nobody hears of it
        """
        for step in itertools.count():
            server = self.boot_here()
            self.agents[self.victim].die_after(step, does_it, self.kills)
            begin(server)
            died = self.see_through(server, meanwhile)
            self.agents[self.victim].revive()
            self.check(server, died)
            self.forget(server)
            if not died:
                break
        self.assertGreater(step, 1)

    def see_through(self, server, meanwhile):
        """Wait until nova does nothing with a server any more; tell whether somebody died."""
        died = None
        for _ in range(400):
            victim = self.agents[self.victim]
            if victim.is_dead:
                died = died or time.monotonic()
                if self.kills:
                    self.start_nova_again(server)
                elif time.monotonic() - died > self.silence:
                    self.start_agent_again()
            elif not self.is_busy(server):
                return died is not None
            meanwhile(server)
            time.sleep(0.1)
        self.fail(f"nova is still busy with {self.api.get_server(server['id'])}")

    def is_busy(self, server):
        found = self.api.get_server(server["id"])["OS-EXT-STS:task_state"]
        return found or any(one["status"] not in _ENDED for one in self.migrations(server))

    def migrations(self, server):
        path = f"/os-migrations?instance_uuid={server['id']}"
        return self.api.api_get(path).body["migrations"]

    def start_nova_again(self, server):
        """Have another nova-compute; threads of the dead one never reach the agent again."""
        agent = self.agents[self.victim].agent
        if server["id"] in agent.moves and agent.waits[server["id"]] == "told":
            agent.await_move(server["id"])
        self.agents[self.victim] = Mortal(agent)
        super().start_nova_again(server)

    def start_agent_again(self):
        """Have another agent, which waits for the word to hand a disk over again."""
        victim = self.agents[self.victim]
        for server in victim.agent.moves:
            victim.agent.waits[server] = victim.agent.sent
        victim.revive()

    def check(self, server, died):
        """The server runs on one node, has its disk there, and nothing of it is elsewhere.

        It is in error if nova on the source waits in vain for the answer of the destination: as
        with any server then, there is still room for it on the source.
        """
        found = self.api.get_server(server["id"])
        host = self.instance(server).host
        expected = [host], {"ready"}, {host: _RUNNING}, {host}
        if found["status"] == "ERROR":
            self.assertTrue(died)
            self.assertEqual("b", host)
            self.assertEqual("MessagingTimeout", found["fault"]["message"])
            expected = *expected[:3], {"a", "b"}
        else:
            self.assertEqual("ACTIVE", found["status"])
        for one in self.hosts:
            self.computes[one].driver.manage_image_cache(nova_context.get_admin_context(), [])
        for _ in range(100):
            if self.state(server) == expected:
                break
            time.sleep(0.1)
        self.assertEqual(expected, self.state(server))
        self.assertEqual(1, self.made(server))
        self._reboot_server(found, hard=True)
        self.assertEqual(expected, self.state(server))

    def state(self, server):
        """Return where a server's disk is, how it is there, its guests, and where it has room."""
        places = self.places(server)
        states = {self.agents[one].vms[server["id"]]["state"] for one in places}
        guests = {one: self.guest_state(one, server) for one in self.hosts}
        guests = {one: state for one, state in guests.items() if state != _OFF}
        consumers = {server["id"], *(one["uuid"] for one in self.migrations(server))}
        held = {
            one: self._get_allocations_by_provider_uuid(self.compute_rp_uuids[one])
            for one in self.hosts
        }
        return places, states, guests, {one for one in held if consumers & held[one].keys()}

    def guest_state(self, host, server):
        try:
            return self.guest(host, server)._domain._state
        except fakelibvirt.libvirtError:
            return _OFF

    def _delete_server(self, server):
        try:
            super()._delete_server(server)
        except AssertionError:  # SQLite refuses some of many that write: nova is asked again
            super()._delete_server(server)

    def migrate(self, server):
        body = {"os-migrateLive": {"host": "b", "block_migration": "auto"}}
        self.api.post_server_action(server["id"], body)

    def abort(self, server):
        """Call a migration off as soon as that can be, and again if nobody hears it."""
        for one in self.migrations(server):
            if one["status"] == "running":
                with contextlib.suppress(client.OpenStackApiException):
                    self.api.api_delete(f"/servers/{server['id']}/migrations/{one['id']}")

    def abort_memory(self, server):
        if server["id"] in self.sending:
            self.abort(server)


class LiveKills:
    """Nothing that is asked there changes anything, so a lost answer is a lost request."""

    def test_migration_whose_request_is_lost(self):
        self.each_step(self.migrate)

    def test_abort_of_the_disk_whose_request_is_lost(self):
        self.agents["a"].agent.sent = "sending"
        self.each_step(self.migrate, self.abort)

    def test_abort_of_the_memory_whose_request_is_lost(self):
        self.patient = True
        self.each_step(self.migrate, self.abort_memory)


class SourceKills(LiveKills):
    """What is asked there does."""

    def test_migration_whose_answer_is_lost(self):
        self.each_step(self.migrate, does_it=True)

    def test_abort_of_the_disk_whose_answer_is_lost(self):
        self.agents["a"].agent.sent = "sending"
        self.each_step(self.migrate, self.abort, does_it=True)

    def test_abort_of_the_memory_whose_answer_is_lost(self):
        self.patient = True
        self.each_step(self.migrate, self.abort_memory, does_it=True)


class SourceAgentTest(SourceKills, LiveKillsCase):
    """The agent of the node that a server leaves dies."""


class SourceNovaTest(SourceKills, LiveKillsCase):
    """The nova-compute of the node that a server leaves dies."""

    kills = True


class SourceNodeTest(LiveKillsCase):
    """The node that a server leaves loses all but its disks."""

    kills = True
    forgets = True

    def test_migration_whose_answer_is_lost(self):
        self.each_step(self.migrate, does_it=True)


class DestinationAgentTest(LiveKills, LiveKillsCase):
    """The agent of the node to which a server goes dies."""

    victim = "b"


class DestinationNovaTest(LiveKills, LiveKillsCase):
    """The nova-compute of the node to which a server goes dies."""

    victim = "b"
    kills = True
