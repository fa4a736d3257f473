"""What Volt calls over a message bus arrives, as Volt calls it."""

import threading

import oslo_messaging as messaging
import testtools
from oslo_config import cfg

from virtman.background.rpc import Calls

DEADLINE = 10


class CallsTest(testtools.TestCase):
    """Two hosts on a bus of oslo.messaging's own, inside this process."""

    def setUp(self):
        super().setUp()
        conf = cfg.CONF  # some of the library looks into the options of the process
        conf([], default_config_files=[])
        self.heard = {"a": threading.Event(), "b": threading.Event()}
        for host, event in self.heard.items():
            calls = Calls(conf, "fake://", host, event.set)
            calls.start()
            self.addCleanup(calls.stop)
        transport = messaging.get_rpc_transport(conf, url="fake://")
        self.addCleanup(transport.cleanup)
        target = messaging.Target(exchange="virtman", topic="virtman-agent", version="1.0")
        self.volt = messaging.get_rpc_client(transport, target)

    def cast(self, host, **more):
        news = {"host": host, "image": "debian", "generation": 3, **more}
        self.volt.prepare(server=host).cast({}, "placement_changed", **news)

    def test_a_host_hears_what_is_for_it_and_nothing_else(self):
        self.cast("a")
        self.assertTrue(self.heard["a"].wait(DEADLINE))
        self.assertFalse(self.heard["b"].is_set())
        self.cast("b")
        self.assertTrue(self.heard["b"].wait(DEADLINE))

    def test_a_later_volt_may_say_more(self):
        self.cast("a", reason="a parent died")
        self.assertTrue(self.heard["a"].wait(DEADLINE))
