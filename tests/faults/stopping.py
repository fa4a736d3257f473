"""An agent that dies at a chosen root verb: ``python3 stopping.py OPTION...``.

Runs a virtman-agent. Once there is a file ``/host/stop-at`` with a number N in it, the agent and
its privileged part are killed right before the N-th root verb from then on that changes anything.
The file then goes, and the verb's name is in ``/host/stopped-at``.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from oslo_privsep import capabilities, comm, daemon

from virtman.cmd import agent

AT, NAME = Path("/host/stop-at"), Path("/host/stopped-at")
LOOKS = {
    "dm.table", "dm.status", "dm.statuses", "dm.names", "dmstats.counted", "lio.serves",
    "lio.sessions", "kernel.load_modules", "block.read", "block.digests", "lvm.free",
}  # fmt: skip


class Trap:
    """Between the privileged part and its verbs."""

    def __init__(self):
        self.count = 0
        self.lock = threading.Lock()

    def pass_by(self, verb):
        """Count a verb; kill both processes if it is the one."""
        with self.lock:
            if verb in LOOKS or not AT.exists():
                return
            self.count += 1
            if self.count == int(AT.read_text()):
                NAME.write_text(verb)
                AT.unlink()
                os.kill(os.getppid(), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)


def main():
    """Set the trap, then be an agent."""
    trap = Trap()
    process, drop = daemon.Daemon._process_cmd, daemon.Daemon._drop_privs

    def trapped(self, msgid, cmd, *arguments):
        if cmd == comm.Message.CALL:
            trap.pass_by(arguments[0].removeprefix("virtman.privileged."))
        return process(self, msgid, cmd, *arguments)

    def drop_but_one(self):
        self.caps.add(capabilities.CAP_KILL)  # the agent has another account
        drop(self)

    daemon.Daemon._process_cmd, daemon.Daemon._drop_privs = trapped, drop_but_one
    return agent.main()


if __name__ == "__main__":
    sys.exit(main())
