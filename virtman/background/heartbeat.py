"""Tells Volt now and then the state of this host, and hears where it is placed."""

from __future__ import annotations

from virtman.background.nic import Card, Overload
from virtman.coordinator.interface import Report
from virtman.image.attachment import look
from virtman.node.images import Images
from virtman.periodic import Periodic
from virtman.stack.transport import transport

_FIRST_INTERVAL = 1.0
_PATIENCE = 15.0
"""Seconds of one; Volt takes a host for dead that sends none for about as long."""


class Heartbeat:
    """One after another; Volt says how often."""

    def __init__(self, images: Images, card: Card, overload: Overload) -> None:
        self.images = images
        self.card = card
        self.overload = overload
        self._rounds = Periodic(
            "heartbeat", self._turn, _FIRST_INTERVAL, woken=images.needs_changed, patience=_PATIENCE
        )

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """Send no more; one that is under way is waited for."""
        self._rounds.stop()
        self._rounds.join()

    def hasten(self) -> None:
        """Send the next one now."""
        self._rounds.wake()

    def _turn(self) -> None:
        self._rounds.period = self.beat()

    def beat(self) -> float:
        """Send one heartbeat and act on the answer; return seconds until the next."""
        attached = self.images.attachments()
        seen, cut_off = look(attached), transport.cut_off()
        for one in attached:  # whether or not Volt answers
            one.mend(seen, cut_off)
        rates = self.card.rates()
        images = {one.info.name: one.report(seen) for one in attached}
        report = Report(
            images,
            rates.received,
            rates.sent,
            self.overload.look(rates.sent, self.card.speed()),
            self.images.needs(),
            self.images.copies.room(),
        )
        news = self.images.coordinator.heartbeat(report)
        for one in attached:
            if one.info.name in news.unknown:
                one.rejoin()
            if images[one.info.name].ahead:  # else Volt was not asked
                one.share.grant(news.shares.get(one.info.name))
                one.share.want(is_wanted=one.info.name in news.read)
        self.images.place(news.placements)
        return news.interval
