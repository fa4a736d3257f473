"""The bed itself, on real nodes: commands, faults, links, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import testtools

from lab import Bed, Disk
from lab.errors import (
    BedExists,
    CommandFailed,
    CommandNotStarted,
    CommandTimeout,
    NodeLost,
    NodeUnreachable,
    NoSuchBed,
)
from lab.network import Network
from lab.ports import free_port
from lab.state import DISKS, RUN
from lab.waiting import wait_until
from tests.system.virtman.base import NEWER, kernel_of

RATE = 20_000_000 / 8  # bytes a second on the shaped bed
FRAMES = """
import socket, sys, time

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    if not sys.argv[1:]:
        sock.bind(("0.0.0.0", 7007))
        while True:
            sock.sendto(*sock.recvfrom(100))
    sock.settimeout(5)
    sock.connect((sys.argv[1], 7007))
    while True:  # until it listens
        sock.send(b"0")
        try:
            sock.recv(100)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    for _ in range(3000):
        sock.send(b"1")
        sock.recv(100)
        time.sleep(0.005)  # so that both kernels have nothing to do
print("answered")
"""


def bed_name(what):
    return f"test-{what}-{os.getpid()}"


class TestNode(testtools.TestCase):
    """One bed of two nodes for all of these; each test leaves it healthy."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bed = Bed(bed_name("node"), link_rate="20mbit")
        cls.bed.up()
        cls.addClassCleanup(cls.bed.down)
        cls.node, cls.peer = cls.bed.start_nodes(["node1", "node2"], memory="256M")

    def setUp(self):
        super().setUp()
        self.addCleanup(self.no_kernel_faults)

    def no_kernel_faults(self):
        for node in (self.node, self.peer):
            self.assertEqual([], node.kernel_faults())

    def test_a_command_gives_its_status_and_both_outputs(self):
        result = self.node.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
        self.assertEqual((3, "out\n", "err\n"), (result.status, result.stdout, result.stderr))

    def test_a_failed_command_raises_with_its_output(self):
        error = self.assertRaises(CommandFailed, self.node.run, ["ls", "/nowhere"])
        self.assertIn("/nowhere", str(error))

    def test_standard_input_and_output_are_binary_safe(self):
        data = bytes(range(256)) * 4096
        self.assertEqual(data, self.node.run(["cat"], input=data).stdout_bytes)

    def test_an_argument_list_meets_no_shell(self):
        self.assertEqual("$HOME *\n", self.node.run(["echo", "$HOME *"]).stdout)

    def test_environment_is_passed(self):
        self.assertEqual("1\n", self.node.run(["printenv", "X"], env={"X": "1"}).stdout)

    def test_a_missing_program_is_a_clear_error(self):
        self.assertRaises(CommandNotStarted, self.node.run, ["no-such-program"])

    def test_a_command_ended_by_a_signal_has_a_negative_status(self):
        result = self.node.run(["sh", "-c", "kill -9 $$"], check=False)
        self.assertEqual(-signal.SIGKILL, result.status)

    def test_a_command_that_times_out_is_ended_in_the_node(self):
        argv = ["sh", "-c", "sleep 4711; true"]
        self.assertRaises(CommandTimeout, self.node.run, argv, timeout=0.5)
        wait_until(lambda: not self.pids("sleep 4711"), "the end of sleep", 5)

    def pids(self, command):
        return self.node.run(["pgrep", "-xf", command], check=False).stdout.split()

    def test_many_commands_run_at_once(self):
        begin = time.monotonic()
        runs = [threading.Thread(target=self.node.run, args=(["sleep", "2"],)) for _ in range(16)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        self.assertLess(time.monotonic() - begin, 10)

    def test_a_spawned_command_stays_and_logs_into_the_share(self):
        pid = self.node.spawn(["sh", "-c", "echo ready; exec sleep 1000"], log="spawn.log")
        log = self.node.share / "spawn.log"
        wait_until(lambda: log.read_text() == "ready\n", "the log", 5)
        self.node.run(["kill", str(pid)])

    def test_orphans_are_reaped(self):
        self.node.run(["sh", "-c", "(sleep 0.2; exit 1) & exit 0"])
        states = ["ps", "-e", "-o", "stat="]
        wait_until(
            lambda: not self.pids("sleep 0.2") and "Z" not in self.node.run(states).stdout,
            "no zombie",
            5,
        )

    def test_share_is_seen_from_both_sides(self):
        (self.node.share / "from-host").write_text("hello")
        self.assertEqual("hello", self.node.run(["cat", "/host/from-host"]).stdout)
        self.node.run(["touch", "/host/from-node"])
        self.assertTrue((self.node.share / "from-node").exists())

    def test_source_tree_is_there_and_read_only(self):
        self.node.run(["test", "-e", "/opt/src/setup.cfg"])
        self.assertRaises(CommandFailed, self.node.run, ["touch", "/opt/src/written"])

    def test_libraries_of_the_product_can_be_imported(self):
        self.node.run(
            ["python3", "-c", "import rtslib_fb, werkzeug, sqlalchemy, oslo_privsep.daemon"]
        )

    def test_target_is_ready_for_rtslib(self):
        dbroot = self.node.run(["cat", "/sys/kernel/config/target/dbroot"]).stdout
        self.assertEqual("/etc/rtslib-fb-target", dbroot.strip())
        self.node.run(["pgrep", "-x", "iscsid"])

    def test_power_cut_is_a_lost_node_even_amid_a_command(self):
        threading.Timer(1, self.peer.kill).start()
        error = self.assertRaises(NodeLost, self.peer.run, ["sleep", "60"])
        self.assertIn("node2", str(error))
        self.assertRaises(NodeLost, self.peer.run, ["true"])
        self.peer.restart()
        self.peer.run(["true"])

    def test_restart_keeps_what_was_synced(self):
        self.peer.run(["sh", "-c", "echo kept > /root/file; sync"])
        self.peer.run(["sh", "-c", "echo cached | dd of=/dev/ubdb conv=fsync"])
        self.peer.restart()
        self.assertEqual("kept\n", self.peer.run(["cat", "/root/file"]).stdout)
        self.assertEqual("cached", self.peer.run(["head", "-c", "6", "/dev/ubdb"]).stdout)

    def test_paused_node_answers_after_it_is_resumed(self):
        busy = ["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo $i"]
        counted = []
        counting = threading.Thread(target=lambda: counted.append(self.peer.run(busy).stdout))
        counting.start()
        self.peer.pause()
        self.assertRaises((CommandTimeout, NodeUnreachable), self.peer.run, ["true"], timeout=2)
        self.assertTrue(self.peer.alive())
        self.peer.resume()
        self.peer.run(["true"], timeout=20)
        counting.join()
        self.assertEqual(["300000\n"], counted)

    def test_cut_node_is_unreachable_until_it_is_healed(self):
        ping = ["ping", "-c", "1", "-W", "1", self.peer.address]
        self.node.run(ping)
        self.peer.cut()
        self.assertNotEqual(0, self.node.run(ping, check=False).status)
        self.assertRaises((CommandTimeout, NodeUnreachable), self.peer.run, ["true"], timeout=2)
        self.peer.heal()
        self.peer.run(["true"], timeout=20)
        self.node.run(ping)

    def test_what_waits_in_a_kernel_is_told_past_a_link_too_and_where_the_kernel_is(self):
        self.assertEqual("", self.peer.waiting_tasks())
        self.addCleanup(self.peer.run, ["true"], timeout=20)
        self.peer.cut()
        try:
            self.assertIn("Show Blocked State", self.peer.waiting_tasks(timeout=1))
        finally:
            self.peer.heal()
        self.peer.pause()
        try:
            self.assertRegex(self.peer.waiting_tasks(timeout=1), r"its kernel: timed out\n\d+ T ")
        finally:
            self.peer.resume()

    def test_shaped_link_takes_bytes_divided_by_rate_both_ways(self):
        data = os.urandom(10_000_000)
        for name, transfer in (
            ("received_bytes", lambda: self.node.run(["wc", "-c"], input=data)),
            ("sent_bytes", lambda: self.node.run(["head", "-c", "10000000", "/dev/zero"])),
        ):
            before, begin = getattr(self.node, name)(), time.monotonic()
            transfer()
            ratio = (time.monotonic() - begin) / (len(data) / RATE)
            counted = getattr(self.node, name)() - before
            self.assertTrue(0.8 < ratio < 1.6, f"{name}: {ratio:.2f} of the time by arithmetic")
            self.assertTrue(1.0 < counted / len(data) < 1.15, f"{name}: {counted} bytes")

    def test_nothing_leads_out_of_the_bed(self):
        self.assertNotIn("default", self.node.run(["ip", "route"]).stdout)
        self.assertEqual("", self.bed.run_in(["ip", "route", "show", "default"]).stdout)
        ping = ["ping", "-c", "1", "-W", "1", "192.0.2.1"]
        self.assertNotEqual(0, self.node.run(ping, check=False).status)

    def test_host_process_lives_in_the_network_of_the_bed(self):
        log = Path(self.bed.run_in(["mktemp"]).stdout.strip())
        self.addCleanup(log.unlink)
        server = [sys.executable, "-m", "http.server", "8080", "--bind", "10.78.0.254"]
        service = self.bed.spawn(server, log=log, cwd=self.node.share)
        (self.node.share / "page").write_text("served")
        wait_until(self.served, "the service", 10)
        port = free_port()
        self.bed.forward(port, ("10.78.0.254", 8080))
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"GET /page HTTP/1.0\r\n\r\n")
            self.assertIn(b"served", client.makefile("rb").read())
        service.end(grace=5)
        self.assertFalse(service.alive())

    def served(self):
        try:
            self.bed.connect(("10.78.0.254", 8080), timeout=1).close()
        except OSError:
            return False
        return True

    def test_another_process_can_attach(self):
        exec_ = [sys.executable, "-m", "lab", "exec", "--name", self.bed.name, "node1", "--"]
        done = subprocess.run(
            [*exec_, "sh", "-c", "echo here; exit 7"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((7, "here\n"), (done.returncode, done.stdout))


class TestFrames(testtools.TestCase):
    """Two nodes with the kernel that is more often too quick for its TAP device."""

    def test_no_frame_stays_until_the_next_one_comes(self):
        with kernel_of(NEWER), Bed(bed_name("frames")) as bed:
            asking, answering = bed.start_nodes(["node1", "node2"], memory="256M")
            for node in (asking, answering):
                (node.share / "frames.py").write_text(FRAMES)
            answering.spawn(["python3", "/host/frames.py"], log="frames.log")
            words = ["python3", "/host/frames.py", answering.address]
            self.assertEqual("answered\n", asking.run(words, timeout=300).stdout)


class TestBed(testtools.TestCase):
    """Whole beds, up and down."""

    def test_two_beds_side_by_side_and_nothing_left(self):
        with Bed(bed_name("left")) as left, Bed(bed_name("right")) as right:
            one = left.start_node("node1", memory="192M")
            two = right.start_node("other", memory="192M")
            self.assertEqual(one.address, two.address)
            self.assertEqual("node1\n", one.run(["cat", "/proc/sys/kernel/hostname"]).stdout)
            self.assertEqual("other\n", two.run(["cat", "/proc/sys/kernel/hostname"]).stdout)
            one.kill()
            two.run(["true"])
            self.assertEqual([], left.down())
            two.run(["true"])
        self.assert_gone(left.name)
        self.assert_gone(right.name)

    def assert_gone(self, name):
        self.assertFalse((RUN / name).exists() or (DISKS / name).exists())
        self.assertFalse(Network(name).exists())
        commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
        self.assertFalse([command for command in commands if f"/{name}/".encode() in command])
        self.assertRaises(NoSuchBed, Bed.attach, name)
        self.assertEqual([], Bed(name).down())

    def test_a_taken_name_is_a_clear_error_and_harms_nobody(self):
        with Bed(bed_name("taken")) as bed:
            self.assertRaises(BedExists, Bed(bed.name).__enter__)
            self.assertTrue(Network(bed.name).exists())

    def test_an_exception_brings_the_bed_down(self):
        name = bed_name("exception")
        with testtools.ExpectedException(ZeroDivisionError), Bed(name) as bed:
            bed.start_node("node1", memory="192M")
            raise ZeroDivisionError
        self.assert_gone(name)

    def test_images_are_given_read_only_or_with_writes_kept_apart(self):
        with Bed(bed_name("disks")) as bed:
            bed_folder = DISKS / bed.name
            image = bed_folder / "image"
            image.write_bytes(b"original" + bytes((1 << 20) - 8))
            disks = [Disk(image, readonly=True), Disk(image)]
            node = bed.start_node("storage", memory="192M", disks=disks)
            write = ["dd", "of=/dev/ubdc", "bs=512", "count=1", "conv=fsync"]
            self.assertNotEqual(0, node.run(write, input="changed!", check=False).status)
            node.run(["dd", "of=/dev/ubdd", "conv=fsync"], input="changed!" * 64)
            self.assertEqual("original", node.run(["head", "-c", "8", "/dev/ubdc"]).stdout)
            self.assertEqual("changed!", node.run(["head", "-c", "8", "/dev/ubdd"]).stdout)
            self.assertEqual(b"original", image.read_bytes()[:8])

    def test_a_killed_lab_can_be_cleaned_up_by_name(self):
        name = bed_name("killed")
        owner = self.owner(name)
        owner.kill()
        owner.wait()
        self.assertTrue(Bed.attach(name).node("node1").alive())
        down = subprocess.run([sys.executable, "-m", "lab", "down", "--name", name], check=False)
        self.assertEqual(0, down.returncode)
        self.assert_gone(name)

    def test_a_terminated_lab_brings_its_bed_down(self):
        name = bed_name("terminated")
        owner = self.owner(name)
        owner.terminate()
        self.assertEqual(128 + signal.SIGTERM, owner.wait(timeout=30))
        self.assert_gone(name)

    def owner(self, name):
        """Start a process that owns a bed with one node, and wait until it is up."""
        program = (
            "import sys, time; from lab import Bed\n"
            "with Bed(sys.argv[1]) as bed:\n"
            "    bed.start_node('node1', memory='192M'); print('up', flush=True); time.sleep(600)"
        )
        owner = subprocess.Popen(
            [sys.executable, "-c", program, name], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(owner.stdout.close)
        self.addCleanup(Bed(name).down)
        self.assertEqual("up\n", owner.stdout.readline())
        return owner
