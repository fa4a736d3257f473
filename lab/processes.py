"""Which processes are the bed's, and ending no others.

A process is named by its pid *and* its start time, so that a pid which the
kernel has given to somebody else meanwhile is never signalled. Each process
of a bed leads a session of its own; its children are ended with its group.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.errors import DeadlinePassed, LabError
from lab.waiting import wait_until

# What a command begins with that must not outlive the thread that starts it.
MORTAL = ("setpriv", "--pdeathsig", "KILL")


@dataclass(frozen=True)
class Stat:
    """The fields of /proc/PID/stat that tell processes apart; `started` in clock ticks."""

    pid: int
    state: str
    group: int
    started: int


def parse_stat(text: str) -> Stat:
    """Read a line of /proc/PID/stat, whose second field may hold spaces and brackets."""
    pid, _, rest = text.partition(" ")
    fields = rest.rpartition(")")[2].split()
    return Stat(pid=int(pid), state=fields[0], group=int(fields[2]), started=int(fields[19]))


def stat_of(pid: int) -> Stat | None:
    """Return a process's fields, or None if there is no such process."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None


def all_stats() -> Iterator[Stat]:
    """Go through every process of this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := stat_of(int(entry.name))):
            yield stat


def network_namespace(pid: int) -> int | None:
    """Return the inode of a process's network namespace, or None if it is gone."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


@dataclass(frozen=True)
class Process:
    """A process that a bed started: the leader of its own session and group."""

    pid: int
    started: int
    what: str

    def stat(self) -> Stat | None:
        """Return the process's fields if this pid is still the same process."""
        stat = stat_of(self.pid)
        return stat if stat and stat.started == self.started else None

    def alive(self) -> bool:
        """Tell whether it runs; a zombie does not."""
        _reap(self.pid)
        stat = self.stat()
        return stat is not None and stat.state not in "ZX"

    def group(self, namespace: int | None = None) -> list[int]:
        """Return the living members of its group, the leader first.

        Without the leader only members inside the bed's network namespace
        (its inode) count: nothing else proves that the group is still ours.
        """
        _reap(self.pid)
        led = self.stat() is not None
        members = [
            stat.pid
            for stat in all_stats()
            if stat.group == self.pid
            and stat.state not in "ZX"
            and (led or (namespace is not None and network_namespace(stat.pid) == namespace))
        ]
        # A kernel that is killed after its programs panics first, and says so in its log.
        return sorted(members, key=lambda pid: pid != self.pid)

    def places(self) -> str:
        """Return what each member of its group does: a line with pid, state, and where it waits."""
        lines = []
        for pid in self.group():
            with suppress(OSError):
                stat, place = stat_of(pid), Path(f"/proc/{pid}/wchan").read_text()
                lines.append(f"{pid} {stat.state if stat else 'X'} {place}")
        return "\n".join(lines)

    def end(self, namespace: int | None = None, grace: float = 0) -> None:
        """End the group: asked first if `grace` seconds are given, then killed."""
        if grace:
            self._signal(signal.SIGTERM, namespace)
            with suppress(DeadlinePassed):
                wait_until(lambda: not self.group(namespace), f"the end of {self.what}", grace)
        # Again each time: a kernel that is just starting a process has one more by then.
        wait_until(
            lambda: not self._signal(signal.SIGKILL, namespace), f"the end of {self.what}", 10
        )

    def _signal(self, how: signal.Signals, namespace: int | None) -> list[int]:
        """Send a signal to the group; return whom it was sent to."""
        members = self.group(namespace)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        return members


def _reap(pid: int) -> None:
    """Collect a child of this process that has ended, if it is one."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def start(
    argv: Sequence[str | Path],
    what: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Process:
    """Start a command in its own session, with its output added to `log`."""
    with open(log, "ab") as output:
        child = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=True,
        )
    stat = stat_of(child.pid)
    child.returncode = 0  # from now on _reap waits for it, not subprocess
    if stat is None:
        raise LabError(f"{what} ended at once: see {log}")
    return Process(pid=child.pid, started=stat.started, what=what)
