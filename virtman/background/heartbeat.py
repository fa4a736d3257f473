"""Tells Volt now and then the state of this host, and hears where it is placed."""

from __future__ import annotations

import logging
import threading

from virtman.background.nic import Card, Overload
from virtman.coordinator.client import Report
from virtman.errors import VirtmanError
from virtman.image.attachment import look
from virtman.node.agent import Agent

LOG = logging.getLogger(__name__)

_FIRST_INTERVAL = 1.0


class Heartbeat:
    """A thread; Volt says how often."""

    def __init__(self, agent: Agent, card: Card, overload: Overload) -> None:
        self.agent = agent
        self.card = card
        self.overload = overload
        self._stopped = False
        self._hastened = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self.hasten()
        self._thread.join()

    def hasten(self) -> None:
        """Send the next one now."""
        self._hastened.set()

    def _run(self) -> None:
        interval = _FIRST_INTERVAL
        while not self._stopped:
            self._hastened.clear()
            try:
                interval = self.beat()
            except VirtmanError as err:
                LOG.warning("heartbeat: %s", err)
            except Exception:
                LOG.exception("heartbeat")
            self._hastened.wait(interval)

    def beat(self) -> float:
        """Send one heartbeat and act on the answer; return seconds until the next."""
        attached = self.agent.attachments()
        seen = look(attached)
        for one in attached:  # whether or not Volt answers
            one.mend(seen)
        rates = self.card.rates()
        report = Report(
            {one.info.name: one.report(seen) for one in attached},
            rates.received,
            rates.sent,
            self.overload.look(rates.sent, self.card.speed()),
        )
        news = self.agent.coordinator.heartbeat(report)
        for one in attached:
            if one.info.name in news.unknown:
                one.rejoin()
        self.agent.place(news.placements)
        return news.interval
