"""News through a real RabbitMQ, which dies and comes back."""

import threading
import time

from oslo_config import cfg

from lab.broker import Broker
from lab.waiting import wait_until
from tests.functional.volt.base import TestCase
from tests.functional.volt.service import ServiceCase
from virtman.background.rpc import Calls
from volt.background.notify import Notifier
from volt.db.changes import Change


class TestCasts(ServiceCase):
    workers = 2
    database = "postgresql"

    def setUp(self):
        self.broker = Broker()
        self.addCleanup(self.broker.stop)
        self.options = {"notify": {"transport_url": self.broker.url}}
        super().setUp()
        self.called = threading.Event()
        agent = cfg.ConfigOpts()
        agent([], default_config_files=[])
        calls = Calls(agent, self.broker.url, "a", self.called.set)
        calls.start()
        self.addCleanup(calls.stop)

    def test_an_agent_is_called_within_a_second_and_a_dead_broker_holds_nothing_up(self):
        self.api.join("x", "a")
        assert self.called.wait(1)
        self.broker.kill()
        begun = time.monotonic()
        for number in range(10):
            assert self.api.join("x", f"b{number}")
        assert time.monotonic() - begun < 5
        self.broker.start()
        wait_until(self.hears_again, "a cast through the new broker", 30)

    def hears_again(self):
        self.called.clear()
        self.api.call("DELETE", "/v1/images/x/hosts/a")
        self.api.join("x", "a")
        return self.called.wait(1)


class TestNotifier(TestCase):
    def test_what_cannot_be_sent_is_dropped_and_the_rest_goes_out(self):
        sent, broken = [], [True]

        def cast(change):
            if broken:
                raise OSError("no broker")
            sent.append(change)

        notifier = Notifier(cast, pause=0.1)
        notifier.start()
        with self.assertLogs("volt.background.notify", "INFO") as logs:
            notifier.tell([Change("x", f"h{number}", 1) for number in range(20_000)])
            wait_until(lambda: notifier.dropped == 20_000, "the end of the queue", 10)
            broken.clear()
            notifier.tell([Change("x", "late", 2)])
            wait_until(lambda: len(logs.output) == 2, "a word that it works again", 10)
        assert sent == [Change("x", "late", 2)]
