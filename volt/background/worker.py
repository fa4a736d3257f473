"""What a process of volt-api does beside serving: it keeps time, expires hosts and brings news."""

import os
import secrets
import socket
from collections.abc import Sequence

from oslo_config import cfg

from volt.background import clock, notify, waiters
from volt.background.clock import Clock
from volt.background.notify import Notifier
from volt.background.periodic import Rounds
from volt.background.reaper import Reaper
from volt.background.waiters import Watch
from volt.db.changes import Change, Changes
from volt.db.clock import ClockTable
from volt.db.engine import connect
from volt.registry.batches import Turns
from volt.registry.caps import Caps
from volt.registry.copies import Copies
from volt.registry.holds import Holds
from volt.registry.hosts import Hosts
from volt.registry.images import Images
from volt.registry.imports import Imports
from volt.registry.placements import Placements
from volt.registry.profiles import Profiles
from volt.registry.reports import Prober, Reports
from volt.registry.warmups import Warmups

_MEGABIT = 1_000_000 // 8


class Worker:
    """One process; make it after the fork, since no connection may cross one."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.engine = engine = connect(
            conf.database.connection, conf.database.busy_timeout, conf.database.connections
        )
        turns: Turns[str] = Turns()
        self.images = Images(engine, turns, conf.source.timeout)
        uplink = conf.placement.rack_uplink * _MEGABIT
        self.placements = Placements(engine, turns, uplink)
        self.profiles = Profiles(engine, turns)
        self.warmups = Warmups(engine, turns)
        self.holds = Holds(engine)
        self.imports = Imports(engine)
        self.caps = Caps(engine)
        self.copies = Copies(engine, turns)
        self.hosts = Hosts(engine, self.placements)
        self.reports = Reports(self.hosts, Prober())
        self.watch = Watch(Changes(engine).following, self._tell)
        self._clock = Clock(ClockTable(engine), _name())
        self._reaper = Reaper(self.hosts, conf.heartbeat.expiry)
        self._notifier = _notifier(conf)
        self._rounds = [
            Rounds("clock", self._clock.beat, clock.TICK),
            # Apart from the clock: it must not stand still while many hosts are expired.
            Rounds("reaper", self._reap, clock.TICK),
            Rounds("copies", self._tend, clock.TICK),
            Rounds("watch", self.watch.look, waiters.INTERVAL),
        ]

    def start(self) -> None:
        """Begin with all of it."""
        if self._notifier is not None:
            self._notifier.start()
        for rounds in self._rounds:
            rounds.start()

    def stop(self) -> None:
        """Answer those who wait and hand the clock on."""
        self.watch.stop()
        for rounds in self._rounds:
            rounds.stop()
        self._clock.release()

    def _reap(self) -> None:
        tick = self._clock.tick
        if tick is None:
            self._reaper.rest()
        else:
            self._reaper.reap(tick)

    def _tend(self) -> None:
        if self._clock.tick is not None:
            self.copies.tend()

    def _tell(self, changes: Sequence[Change]) -> None:
        if self._notifier is not None and self._clock.tick is not None:
            self._notifier.tell(changes)


def _name() -> str:
    """Return a name that no other worker has, whichever machine it runs on."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(4)}"


def _notifier(conf: cfg.ConfigOpts) -> Notifier | None:
    url = conf.notify.transport_url
    return Notifier(notify.connect(url, conf.config_file or ())) if url else None
