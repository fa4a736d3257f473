"""Follows the boots from images that were just attached: each is recorded, or helped."""

from __future__ import annotations

import logging
import threading

from virtman.image.attachment import Attachment
from virtman.image.boot import Boot, Options
from virtman.image.prefetch import Totals
from virtman.node.agent import Agent
from virtman.periodic import Periodic
from virtman.stack.reads import Reads

LOG = logging.getLogger(__name__)

_INTERVAL = 0.25


class Boots:
    """Looks for images that came, and gives each boot a thread of its own.

    :ivar totals: what was done in all images since the agent started
    """

    def __init__(self, agent: Agent, options: Options) -> None:
        self.agent = agent
        self.options = options
        self.totals = Totals()
        self._known: dict[str, Reads] = {}
        self._rounds = Periodic("boots", self.look, _INTERVAL)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """End all; a read that is under way ends with the process."""
        self._rounds.stop()

    def look(self) -> None:
        """Follow the boots that began since the last look."""
        found = {one.info.name: one for one in self.agent.attachments() if not one.is_moving()}
        self._known = {name: reads for name, reads in self._known.items() if name in found}
        for name, one in found.items():
            reads = one.reads
            if reads is not None and self._known.get(name) is not reads:
                self._known[name] = reads
                self._follow(one, reads)

    def _follow(self, attachment: Attachment, reads: Reads) -> None:
        boot = Boot(
            attachment,
            reads,
            self.agent.coordinator,
            self.options,
            self.totals,
            self._rounds.sleep,
        )
        name = f"boot {attachment.info.name}"
        threading.Thread(target=boot.run, name=name, daemon=True).start()
