"""Whether hosts that are silent are dead, or Volt is cut off from them.

One fault at Volt's end silences all hosts but those that are near it; one fault at the hosts'
end, such as of a rack, silences the fewer. So if most fall silent within the same seconds, it
is Volt who is cut off, and none is expired:

========  ========================================  =======================================
phase     silent hosts                              ends
========  ========================================  =======================================
OFF       are expired                               when most are silent: HELD
HELD      are kept                                  when most are heard: BACK;
                                                    after ``HOLD`` in which some were: SPENT
BACK      are kept, those that live report soon     after ``expiry``: OFF
SPENT     are expired: they are dead after all      when most are heard: OFF
========  ========================================  =======================================

To keep the dead for long costs little: who reads from one reports it, and Volt, which tries the
parent itself, expires it whatever this brake says. To expire the living costs all trees. So
``HOLD`` is long, and an operator ends it sooner (``volt-manage host expire``).
"""

from enum import Enum

MANY = 3  # hosts that do not die all at once
FEW = 8  # hosts that may, though others live: a rack of a small site
HOLD = 24 * 3600  # ticks: somebody has looked by then


class Phase(Enum):
    """What holds for silent hosts."""

    OFF = "off"
    HELD = "held"
    BACK = "back"
    SPENT = "spent"


class Brake:
    """Says tick by tick whether silent hosts are kept."""

    def __init__(self, expiry: int) -> None:
        self._expiry = expiry
        self.phase = Phase.OFF
        self._since = 0  # the tick from which on some are heard
        self._last = 0  # the last tick at which most were silent

    @property
    def holds(self) -> bool:
        """Whether nobody is to be expired."""
        return self.phase in (Phase.HELD, Phase.BACK)

    def look(self, tick: int, known: int, silent: int) -> None:
        """Note how many of the known hosts are silent now."""
        is_heard = silent < known
        if not _are_most(known, silent):
            if self.phase == Phase.HELD:
                self.phase = Phase.BACK
            if self.phase == Phase.SPENT or tick - self._last > self._expiry:
                self.phase = Phase.OFF
            return
        self._last = tick
        if self.phase != Phase.HELD and (self.phase != Phase.SPENT or not is_heard):
            self.phase, self._since = Phase.HELD, tick
        if not is_heard:
            self._since = tick
        elif tick - self._since >= HOLD:
            self.phase = Phase.SPENT


def _are_most(known: int, silent: int) -> bool:
    if silent == known:
        return known >= MANY
    return silent > FEW and 2 * silent > known
