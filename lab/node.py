"""One node: a User Mode Linux kernel with disks and a link of its own.

/dev/ubda  16 GiB, copy-on-write over the shared root image
/dev/ubdb  sparse, for the product's cache
/dev/ubdc  and on: the images given to the node
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab import mconsole, processes, processor
from lab.errors import CommandFailed, CommandNotStarted, CommandTimeout, NodeLost, NodeUnreachable
from lab.faults import Faults
from lab.network import Endpoint, Network, node_address, node_mac, tap
from lab.remote import PORT, Conversation, Result, exchange, lifeline
from lab.state import BedRecord, NodeRecord, State
from lab.waiting import wait_until

KERNEL_FAULT = re.compile(
    r"\bBUG\b|\bOops\b|Kernel panic|general protection|blocked for more than|soft lockup"
    r"|rcu.*stall|WARNING: .*CPU|refcount_t:|Call Trace|EXT4-fs error",
    re.IGNORECASE,
)
# What every kernel with a bare multipath in bio mode says once, as reads meet in a disk's queue of
# which some were read ahead (block/blk-merge.c of Linux 6.1 to 7.2): the former are marked to fail
# fast in one way, and reading ahead in all three. They only tell whether a failed read is tried
# again.
KNOWN = re.compile(
    r"^[^\n]*WARNING: [^\n]*\bblk_rq_set_mixed_merge\+((?!WARNING).)*?\bend trace [^\n]*$",
    re.MULTILINE | re.DOTALL,
)
SECTOR = 512
# Not what LIO has of each LUN and initiator: when a LUN goes, it reads on in one that it has just
# left to RCU (core_clear_lun_from_tpg). Elsewhere no grace period ends in between. Here it can, now
# and then: User Mode Linux may take a tick in the kernel for one in a program, as nothing sets
# is_user.
POISON = "slub_debug=P;-,kmalloc-192"
# Prints where tasks are in the kernel that nothing can wake but an answer.
WAITS = """
for task in /proc/[0-9]*/task/*; do
    grep -q '^State:.D' $task/status && tr '\\0' ' ' < $task/cmdline && cat $task/comm $task/stack
done 2> /dev/null
"""
PLACE = re.compile(r"\+0x[0-9a-f]+/0x[0-9a-f]+")


def faults_in(log: str) -> list[str]:
    """Return the lines of a kernel log that no healthy run has, with where the kernel was then."""
    lines = KNOWN.sub("", log).splitlines()
    if not any(map(KERNEL_FAULT.search, lines)):
        return []
    return [line for line in lines if KERNEL_FAULT.search(line) or PLACE.search(line)]


def kernel_command(bed: BedRecord, node: NodeRecord, folder: Path, run: Path) -> list[str]:
    """Return the argument list that starts a node's kernel.

    `folder` holds the node's own files, `run` the kernel's control sockets.
    """
    drives = [f"ubd0={folder}/root.cow,{bed.image}", f"ubd1={folder}/cache.img"]
    for number, disk in enumerate(node.disks, 2):
        if disk.readonly:
            drives.append(f"ubd{number}r={disk.image}")
        else:
            drives.append(f"ubd{number}={folder}/disk{number}.cow,{disk.image}")
    return [
        *bed.kernel,
        f"umid={node.name}",
        f"uml_dir={run}",
        f"mem={node.memory}",
        "con=null",
        "con0=null,fd:1",
        *drives,
        "root=/dev/ubda",
        "rw",
        "init=/usr/local/sbin/init",
        f"vec0:transport=tap,ifname={tap(node.index)},depth=128,gro=1,mac={node_mac(node.index)}",
        "loglevel=7",
        *([POISON] if bed.poisoned else []),
        f"lab.name={node.name}",
        f"lab.address={node_address(node.index)}/24",
        f"lab.source={bed.source}",
        f"lab.share={folder}/share",
    ]


class Node(Faults):
    """A node of a bed; any number of these objects may stand for the same node."""

    def __init__(self, state: State, network: Network, name: str):
        self.name = name
        self._state = state
        self._network = network
        self._folder = state.disks / name
        self._kernels = state.folder / "uml"

    def __repr__(self) -> str:
        return f"<Node {self.name} of bed {self._state.name}>"

    def record(self) -> NodeRecord:
        """Return how the node was started, and as which process."""
        return self._state.read().node(self.name)

    @property
    def address(self) -> str:
        """Its address inside the bed."""
        return node_address(self.record().index)

    @property
    def share(self) -> Path:
        """The folder on this machine that the node sees as /host."""
        return self._folder / "share"

    def make_disks(self) -> None:
        """Make the folder with the node's share and its sparse cache disk."""
        self.share.mkdir(parents=True)
        with open(self._folder / "cache.img", "wb") as disk:
            disk.truncate(size_in_bytes(self.record().cache))

    def boot(self) -> None:
        """Start the kernel on the node's disks, without waiting for it."""
        bed = self._state.read()
        argv = kernel_command(bed, bed.node(self.name), self._folder, self._kernels)
        process = processes.start(
            self._network.command(argv),
            what=f"node {self.name}",
            log=self._folder / "console",
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "TMPDIR": "/dev/shm",  # noqa: S108
                **processor.environment(),
            },
        )
        self._state.change(lambda bed: bed.with_node(replace(bed.node(self.name), process=process)))

    def alive(self) -> bool:
        """Tell whether the node's kernel runs (a paused one does)."""
        process = self.record().process
        return process is not None and process.alive()

    def wait_up(self, deadline: float = 120) -> None:
        """Wait until the node runs commands; raise NodeLost if its kernel ends."""
        wait_until(self._answers, f"an answer of {self.name}", deadline, interval=0.1)

    def _answers(self) -> bool:
        if not self.alive():
            raise self._lost()
        try:
            self._network.connect((self.address, PORT), timeout=0.5).close()
        except OSError:
            return False
        return True

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 60,
        check: bool = True,
        input: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
    ) -> Result:
        """Run a command in the node and wait for its end.

        Raises CommandFailed (with `check`), CommandTimeout, CommandNotStarted,
        NodeUnreachable and NodeLost.
        """
        stdin = input.encode() if isinstance(input, str) else input or b""
        header, outputs = self._ask(argv, timeout, stdin=stdin, env=env, cwd=cwd)
        result = Result(int(header["status"]), *outputs)
        if check and result.status:
            raise CommandFailed(self.name, list(argv), result.status, result.stdout, result.stderr)
        return result

    def spawn(
        self,
        argv: Sequence[str],
        log: str,
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
    ) -> int:
        """Start a command that stays; its output goes to `log` in the share. Return its pid."""
        header, _ = self._ask(argv, 60, env=env, cwd=cwd, log=f"/host/{log}")
        return int(header["pid"])

    def drop_caches(self) -> None:
        """Write back what is dirty, and empty the page caches."""
        self.run(["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"])

    def _ask(
        self,
        argv: Sequence[str],
        timeout: float,
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = "/",
        log: str | None = None,
    ) -> tuple[dict[str, object], tuple[bytes, bytes]]:
        """Send a request to execd and return its answer and the two outputs."""
        record = self.record()
        try:
            with lifeline(record.process) as pidfd, self._network.open_socket() as sock:
                talk = Conversation(sock, pidfd, timeout)
                talk.connect(node_address(record.index))
                header = exchange(talk, argv, stdin=stdin, env=env, cwd=cwd, log=log)
                outputs = [talk.receive(header.get(part, 0)) for part in ("stdout", "stderr")]
        except ProcessLookupError:
            raise self._lost() from None
        except TimeoutError:
            raise CommandTimeout(
                f"{self.name}: {' '.join(argv)} did not end within {timeout:g} s"
            ) from None
        except OSError as err:
            raise self._broken(err) from err
        if "error" in header:
            raise CommandNotStarted(f"{self.name}: {' '.join(argv)}: {header['error']}")
        return header, (outputs[0], outputs[1])

    def _broken(self, err: OSError) -> NodeLost | NodeUnreachable:
        """Tell a connection that broke because the node died from any other."""
        if not self.alive():
            return self._lost()
        return NodeUnreachable(f"{self.name} runs, but: {err}")

    def _lost(self) -> NodeLost:
        return NodeLost(f"{self.name} is gone\n{self.console_tail()}")

    def sent_bytes(self) -> int:
        """Return how many bytes the node has sent over its link."""
        return self._network.counters(self.record().index)[0]

    def received_bytes(self) -> int:
        """Return how many bytes have reached the node over its link."""
        return self._network.counters(self.record().index)[1]

    def read_bytes(self, device: str) -> int:
        """Return how many bytes were read of a block device of the node since it was made."""
        number = self.run(["stat", "-L", "-c", "%Hr:%Lr", device]).stdout.strip()
        return int(self.run(["cat", f"/sys/dev/block/{number}/stat"]).stdout.split()[2]) * SECTOR

    def connect(self, port: int, timeout: float = 5) -> object:
        """Return a socket to a port of the node."""
        target: Endpoint = (self.address, port)
        return self._network.connect(target, timeout)

    def kernel_log(self) -> str:
        """Return all that the node's console has shown, over restarts too."""
        return (self._folder / "console").read_text(errors="replace")

    def console_tail(self, lines: int = 20) -> str:
        """Return the end of the console, and all since some lines before a fault of the kernel."""
        log = self.kernel_log().splitlines()
        first = next((at for at, line in enumerate(log) if KERNEL_FAULT.search(line)), len(log))
        return "\n".join(log[max(0, first - lines) :])

    def waiting_tasks(self, timeout: float = 10) -> str:
        """Return where tasks are in the kernel that nothing can wake but an answer.

        If no program in the node tells it in time, the kernel does, past the node's link; and if
        that does not either, what its processes do on this machine.
        """
        try:
            return self.run(["sh", "-c", WAITS], check=False, timeout=timeout).stdout
        except (CommandTimeout, NodeUnreachable) as gone:
            try:
                said = mconsole.ask(self._kernels / self.name / "mconsole", "sysrq w")
            except OSError as err:
                process = self.record().process
                said = f"its kernel: {err}\n{process.places() if process else ''}"
            return f"{gone}\n{said}"

    def kernel_faults(self) -> list[str]:
        """Return the lines of the kernel log that no healthy run has."""
        return faults_in(self.kernel_log())


def size_in_bytes(size: str) -> int:
    """Return what a size such as 512M or 4G is in bytes."""
    return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size[-1]]
