"""Links, and what is on its way over them.

A *session* goes from one host to another and sends one thing after another, as an iSCSI session
does over its connection. All sessions that have something to send share the links fairly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import simpy

from planning.simulation.shares import Indices, Numbers, max_min

_PASSED = 6
"""Links that a session passes, at most: two of hosts, two of racks, the core and the machine."""

_NOTHING = 1e-3
"""Bytes; less is rounding."""


class Session:
    """A way from one host to another; only the network changes it."""

    __slots__ = ("deliver", "is_open", "place", "queue")

    def __init__(self, place: int, deliver: Callable[[int], None]) -> None:
        self.place = place
        self.deliver = deliver
        self.queue: deque[int] = deque()
        self.is_open = True


class Network:
    """All links and sessions.

    :param capacity: bytes a second of each link; the first one is infinite
    :param most: bytes a second of a session, at most: what is in flight over what a hop takes
    :param hop_s: seconds that a thing takes beside what links take
    :param size: bytes of a thing
    :param step_s: seconds for which rates stay as they are, at least; 0 is exact
    """

    def __init__(
        self,
        env: simpy.Environment,
        capacity: Sequence[float],
        *,
        most: float,
        hop_s: float,
        size: float,
        step_s: float,
    ) -> None:
        self.rounds = 0
        """How often rates were shared out."""
        self._env = env
        self._capacity: Numbers = np.array(capacity)
        self._most = most
        self._hop_s = hop_s
        self._size = size
        self._step_s = step_s
        self._sessions: list[Session] = []
        self._free: list[int] = []
        self._ended: list[int] = []  # places of closed sessions that may still have a rate
        self._links: Indices = np.zeros((0, _PASSED), dtype=np.intp)
        self._left: Numbers = np.zeros(0)
        self._rates: Numbers = np.zeros(0)
        self._sending: set[int] = set()
        self._changed = env.event()
        env.process(self._run())

    def open(self, links: Sequence[int], deliver: Callable[[int], None]) -> Session:
        """Open a session over these links.

        :param deliver: is called with each thing that has arrived
        """
        if not self._free:
            self._grow()
        session = Session(self._free.pop(), deliver)
        self._sessions[session.place] = session
        self._links[session.place] = 0
        self._links[session.place, : len(links)] = links
        return session

    def close(self, session: Session) -> None:
        """End a session; what it has not delivered is lost."""
        if session.is_open:
            session.is_open = False
            session.queue.clear()
            self._sending.discard(session.place)
            self._ended.append(session.place)
            self._change()

    def send(self, session: Session, thing: int) -> None:
        """Send a thing once all before it are sent."""
        session.queue.append(thing)
        if len(session.queue) == 1:
            self._left[session.place] = self._size
            self._sending.add(session.place)
            self._change()

    def _grow(self) -> None:
        more = max(64, len(self._sessions))
        first = len(self._sessions)
        self._free += range(first + more - 1, first - 1, -1)
        self._sessions += [Session(-1, lambda thing: None)] * more
        self._links = np.concatenate([self._links, np.zeros((more, _PASSED), dtype=np.intp)])
        self._left = np.concatenate([self._left, np.zeros(more)])
        self._rates = np.concatenate([self._rates, np.zeros(more)])

    def _change(self) -> None:
        if not self._changed.triggered:
            self._changed.succeed()

    def _run(self) -> Generator[simpy.Event, Any, None]:
        """Share out rates, and wait until a thing is sent or what there is to send has changed.

        What changes within a step is shared out once; those who came meanwhile count as if they
        had come at its begin.
        """
        while True:
            yield self._changed
            while self._sending:
                begin = self._env.now
                yield self._env.timeout(self._step_s)
                self._changed = self._env.event()
                if not self._sending:  # all were closed meanwhile
                    break
                sending = self._share()
                next_s = float((self._left[sending] / self._rates[sending]).min())
                yield self._env.timeout(max(0.0, next_s - self._step_s)) | self._changed
                self._advance(sending, self._env.now - begin)
            self._changed = self._env.event()

    def _share(self) -> Indices:
        """Share out rates; return the places of who sends.

        Only now do places of closed sessions become free: whoever got one earlier would be taken
        to have sent what the closed session had.
        """
        self.rounds += 1
        self._free += self._ended
        self._ended.clear()
        sending = np.fromiter(self._sending, dtype=np.intp, count=len(self._sending))
        most = np.full(len(sending), self._most)
        self._rates[sending] = max_min(self._capacity, self._links[sending], most)
        return sending

    def _advance(self, sending: Indices, seconds: float) -> None:
        self._left[sending] -= self._rates[sending] * seconds
        for place in sending[self._left[sending] <= _NOTHING].tolist():
            if place not in self._sending:  # closed meanwhile
                continue
            session = self._sessions[place]
            while session.queue and self._left[place] <= _NOTHING:
                self._arrive(session, session.queue.popleft())
                self._left[place] += self._size
            if not session.queue:
                self._sending.discard(place)

    def _arrive(self, session: Session, thing: int) -> None:
        def deliver(event: simpy.Event) -> None:
            if session.is_open:
                session.deliver(thing)

        timeout = self._env.timeout(self._hop_s)
        assert timeout.callbacks is not None
        timeout.callbacks.append(deliver)
