"""News through a real RabbitMQ, which dies and comes back."""

import queue
import time
from contextlib import suppress

import oslo_messaging
from oslo_config import cfg

from lab.broker import Broker
from lab.waiting import wait_until
from tests.functional.volt.base import TestCase
from tests.functional.volt.service import ServiceCase
from volt.db.changes import Change
from volt.notify import EXCHANGE, TOPIC, Notifier


class Agent:
    """What an agent listens with."""

    target = oslo_messaging.Target(version="1.0")

    def __init__(self, url, host):
        self.news = queue.Queue()
        cfg.CONF([], project="volt", default_config_files=[])
        transport = oslo_messaging.get_rpc_transport(cfg.CONF, url=url)
        target = oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, server=host)
        self._server = oslo_messaging.get_rpc_server(transport, target, [self])
        self._server.start()

    def placement_changed(self, context, **news):
        """What Volt calls."""
        self.news.put(news)

    def stop(self):
        """Listen no more."""
        self._server.stop()


class TestCasts(ServiceCase):
    workers = 2
    database = "postgresql"

    def setUp(self):
        self.broker = Broker()
        self.addCleanup(self.broker.stop)
        self.options = {"notify": {"transport_url": self.broker.url}}
        super().setUp()
        self.agent = Agent(self.broker.url, "a")
        self.addCleanup(self.agent.stop)

    def test_a_change_is_cast_within_a_second_and_a_dead_broker_holds_nothing_up(self):
        first = self.api.join("x", "a")
        self.expect(first["generation"])
        self.broker.kill()
        begun = time.monotonic()
        for number in range(10):
            assert self.api.join("x", f"b{number}")
        assert time.monotonic() - begun < 5
        self.broker.start()
        wait_until(self.hears_again, "a cast through the new broker", 30)

    def expect(self, generation):
        """Assert that this generation, at least, is told within a second."""
        end = time.monotonic() + 1
        while True:
            news = self.agent.news.get(timeout=max(0, end - time.monotonic()))
            assert (news["host"], news["image"]) == ("a", "x")
            if news["generation"] >= generation:
                return

    def hears_again(self):
        self.api.call("DELETE", "/v1/images/x/hosts/a")
        self.api.join("x", "a")
        with suppress(queue.Empty):
            return self.agent.news.get(timeout=1)


class TestNotifier(TestCase):
    def test_what_cannot_be_sent_is_dropped_and_the_rest_goes_out(self):
        sent, broken = [], [True]

        def cast(change):
            if broken:
                raise OSError("no broker")
            sent.append(change)

        notifier = Notifier(cast, pause=0.1)
        notifier.start()
        with self.assertLogs("volt.notify", "INFO") as logs:
            notifier.tell([Change("x", f"h{number}", 1) for number in range(20_000)])
            wait_until(lambda: notifier.dropped == 20_000, "the end of the queue", 10)
            broken.clear()
            notifier.tell([Change("x", "late", 2)])
            wait_until(lambda: len(logs.output) == 2, "a word that it works again", 10)
        assert sent == [Change("x", "late", 2)]
