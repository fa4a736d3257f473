"""What Volt makes of a host that says its parent is dead, or sends wrong bytes.

It takes nobody's word. A parent that is said to be dead it tries itself, and as a control the
host that reported. If neither answers, it is Volt who cannot see the storage network, and only
missing heartbeats count. The other parents and standbys of that host it tries in the same second:
a rack dies at once, and the host must not be sent from one that is dead to the next.

Wrong bytes Volt cannot see. The host that met them reads from its standby already; what one
host says is kept for the operator, and a parent is drained once several have said it.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from volt import metrics
from volt.model.hosts import Reason, Verdict
from volt.registry.hosts import Hosts
from volt.transport import Portal, probe

LOG = logging.getLogger(__name__)

PATIENCE = 1.0  # seconds for a TCP connection
REMEMBERED = 1.0  # seconds for which the outcome serves others who ask the same
AT_ONCE = 64  # probes
WITNESSES = 2  # hosts that must have met a parent's wrong bytes
MEMORY = 24 * 3600  # seconds for which one's word counts
SOURCE = "source"  # what hosts call the root of a tree
Address = tuple[str, int]


class Prober:
    """Tries portals; those who ask for one at the same moment share the outcome."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._pool = ThreadPoolExecutor(AT_ONCE, "probe")
        self._lock = threading.Lock()  # protects the recent probes
        self._recent: dict[Address, tuple[float, Future[bool]]] = {}

    def probe(self, portal: Portal) -> tuple[Future[bool], bool]:
        """Find out whether it takes connections; also return whether nobody had just asked."""
        address = portal.ip, portal.port
        now = self._monotonic()
        with self._lock:
            self._recent = {
                other: (begun, outcome)
                for other, (begun, outcome) in self._recent.items()
                if not outcome.done() or now - begun < PATIENCE + REMEMBERED
            }
            if address in self._recent:
                return self._recent[address][1], False
            outcome = self._pool.submit(_answers, portal)
            self._recent[address] = now, outcome
            return outcome, True


class Reports:
    """Judges reports, expires parents that are dead and drains those that send wrong bytes."""

    def __init__(self, hosts: Hosts, prober: Prober) -> None:
        self._hosts = hosts
        self._prober = prober

    def judge(self, image: str, host: str, parent: str, reason: Reason) -> Verdict:
        """Check a host's word about its parent; act if it is true.

        Raises ImageUnknown, HostUnknown, ReportMismatch.
        """
        look = self._probe if reason == Reason.SILENT else self._hear
        verdict = look(image, host, parent)
        metrics.PARENT_REPORTS.labels(verdict.value).inc()
        return verdict

    def _hear(self, image: str, host: str, parent: str) -> Verdict:
        """Keep the word of a host that got wrong bytes; the source feeds on all the same."""
        if parent == SOURCE:
            self._hosts.suspects(image, host, None)
            self._hosts.note("source_corrupt", image, None, f"reported by {host}")
            return Verdict.NOTED
        self._hosts.suspects(image, host, parent)
        self._hosts.note("parent_corrupt", image, parent, f"reported by {host}")
        if self._hosts.accuse(parent, host, MEMORY) < WITNESSES:
            return Verdict.NOTED
        self._hosts.drain(parent, True)
        return Verdict.DRAINED

    def _probe(self, image: str, host: str, parent: str) -> Verdict:
        suspects, control = self._hosts.suspects(image, host, parent)
        probes = {name: self._prober.probe(portal) for name, portal in suspects.items() if name}
        of_control, _ = self._prober.probe(control)
        of_parent, is_news = probes.pop(parent)
        if of_parent.result():
            if is_news:
                self._hosts.note("parent_alive", image, parent, f"reported by {host}")
            return Verdict.ALIVE
        if not of_control.result():
            LOG.warning("Neither %s nor %s, who reported it, answers", parent, host)
            return Verdict.UNCLEAR
        if is_news:
            self._hosts.note("parent_dead", image, parent, f"reported by {host}")
        dead = {name: is_first for name, (lives, is_first) in probes.items() if not lives.result()}
        for name, is_first in dead.items():
            if is_first:
                self._hosts.note("parent_dead", image, name, f"feeds {host}, as {parent} did")
        metrics.EXPIRIES.inc(self._hosts.expire([parent, *dead]))
        return Verdict.DEAD


def _answers(portal: Portal) -> bool:
    try:
        probe.connect(portal, PATIENCE)
    except OSError:
        return False
    return True
