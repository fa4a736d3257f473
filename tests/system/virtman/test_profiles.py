"""A profile of what a VM really read on a real kernel, and what it is worth to the next one."""

import json
import random
import time
from itertools import groupby, pairwise
from typing import ClassVar

from lab.waiting import wait_until
from planning.replay import policy, traces
from planning.replay.run import replay
from tests.system.virtman.base import MIB, NEWER, DeployedCase, report, sha256
from virtman.model.buffering import Connection
from virtman.model.profile import merged
from virtman.model.profile_format import decode, encode

PIECE = 64 * 1024
READ = 200  # pieces that a VM reads
FULL_PIECES = 160  # of these, read whole; of the others a block of 4 KiB
SENT = 1.06  # over the data: leaves of the hash tree, headers of the network
ATTACHED = MIB  # bytes that a node receives while it attaches the image, at most
LATE = 0.02  # of the data
RATE = 2 * MIB  # bytes a second: a cap of what is fetched ahead
LONG = 25  # seconds of a run that was recorded
LINE = Connection(rate=100e6 / 8, round_trip_s=0.001)  # no less than what the bed's nodes have
MISSED = 0.3  # of what a VM reads, of a run of which others know much

_REPLAY = """
import json, mmap, os, sys, time
device, reads = json.load(sys.stdin)
opened = os.open(device, os.O_RDONLY | os.O_DIRECT)
memory = mmap.mmap(-1, 65536)
begin, waited = time.monotonic(), 0.0
for second, offset in reads:
    now = time.monotonic() - begin
    time.sleep(max(0.0, second + waited - now))
    before = time.monotonic()
    os.preadv(opened, [memory], offset)
    waited += time.monotonic() - before
"""


class TestProfile(DeployedCase):
    name = "profiles"
    release = NEWER
    node_count = 2
    size = 64 * MIB
    options: ClassVar = {"profile": {"record": 1}}

    def setUp(self):
        super().setUp()
        dice = random.Random(7)
        self.pieces = dice.sample(range(self.size // PIECE), READ)
        self.addCleanup(self.forget)

    def forget(self):
        """Have no profile of the image at Volt."""
        self.deployment.ask("DELETE", f"/v1/images/{self.image}/profiles/boot")

    def read(self, node, device):
        """Read the pieces as a VM does, past its own page cache."""
        whole, parts = self.pieces[:FULL_PIECES], self.pieces[FULL_PIECES:]
        reads = [(number * PIECE, PIECE) for number in whole]
        reads += [(number * PIECE + 8192, 4096) for number in parts]
        program = (
            "import json, mmap, os, sys\n"
            "device, reads = json.load(sys.stdin)\n"
            "opened = os.open(device, os.O_RDONLY | os.O_DIRECT)\n"
            "memory = mmap.mmap(-1, 65536)\n"
            "for offset, length in reads:\n"
            "    os.preadv(opened, [memoryview(memory)[:length]], offset)\n"
        )
        node.run(["python3", "-c", program], input=json.dumps([device, reads]), timeout=300)

    def profile(self):
        """Return the profile that Volt has, encoded; None if there is none."""
        answer = self.deployment.request("GET", f"/v1/images/{self.image}/profiles/boot")
        return answer.content if answer.status_code == 200 else None

    def kill(self, node, device):
        """Kill a node's agent, and start another, which follows no boot; the VM has its data."""
        counter = ["dmsetup", "message", f"virtman_{self.image}_origin", "0", "@stats_list"]
        self.assertIn("virtman", node.run(counter).stdout)
        self.restart_agent(node)
        wait_until(lambda: not node.run(counter).stdout, "no reads being counted", 30, 0.2)
        self.assertEqual(self.sha256, sha256(node, device))

    def fetched(self, node):
        """How often a node has fetched ahead by now."""
        return (node.share / "agent.log").read_text().count("were fetched ahead of VMs")

    def test_what_one_node_recorded_the_next_one_has_before_its_vm_reads(self):
        first, second = self.nodes
        self.read(first, self.create(first, "vm1"))
        wait_until(self.profile, "a profile at Volt", 90, 0.5)
        found = set(decode(self.profile()).wanted())
        wanted = set(self.pieces)
        covered = len(wanted & found) / len(wanted)
        extra = found - wanted
        self.assertEqual((1.0, set()), (covered, extra))

        earlier, before = self.fetched(second), second.received_bytes()
        device = self.create(second, "vm2")
        wait_until(lambda: self.fetched(second) > earlier, "what is fetched ahead", 90, 0.2)
        ahead = second.received_bytes() - before
        self.assertLess(ahead, SENT * READ * PIECE + ATTACHED)
        before = second.received_bytes()
        self.read(second, device)
        late = second.received_bytes() - before
        self.assertLess(late, LATE * READ * PIECE)
        report(
            f"boot profile: {len(found)} pieces of {READ} recorded, {len(extra)} that nobody read; "
            f"{ahead >> 10} KiB came ahead, {late >> 10} KiB when the VM read"
        )

    def runs(self):
        """Return the first seconds of runs that were recorded, of pieces that lie together."""
        (trace,) = (one for one in traces.recorded() if one.workload == "database")
        runs = [{piece: s for piece, s in run.items() if s < LONG} for run in trace.runs]
        places = {piece: place for place, piece in enumerate(sorted(set().union(*runs)))}
        self.assertLess(len(places) * PIECE, self.size)
        return [{places[piece]: s for piece, s in run.items()} for run in runs]

    def store(self, node, runs):
        """Have a profile of runs at Volt, imported on a node."""
        root = self.deployment.ask("GET", f"/v1/images/{self.image}")["root_hash"]
        made = None
        for run in runs:
            made = merged(made, run, root)
        (node.share / "known.profile").write_bytes(encode(made))
        where = self.deployment.volt_options(node)
        self.virtman(node, "profile", "import", self.image, "/host/known.profile", *where)

    def follow(self, node):
        """Have a node's agent follow VMs, until the test is over."""
        options = {"profile": {**self.options["profile"], "policy": "stream"}}
        self.deployment.kill_agent(node)
        self.addCleanup(self.start_agent, node)
        self.addCleanup(self.deployment.kill_agent, node)
        self.deployment.start_agent(node, options)

    def test_what_vms_read_decides_what_comes_next(self):
        node, _ = self.nodes
        run, *others = self.runs()
        self.store(node, others)
        self.follow(node)
        before = node.received_bytes()
        device = self.create(node, "vm1")
        reads = [(s, piece * PIECE) for piece, s in sorted(run.items(), key=lambda one: one[::-1])]
        node.run(["python3", "-c", _REPLAY], input=json.dumps([device, reads]), timeout=300)
        time.sleep(2)  # the last look
        ahead = self.deployment.ahead(node, self.image)
        read = len(run) * PIECE
        ratio, missed = (node.received_bytes() - before) / read, 1 - ahead["used"] / read
        alike = replay(run, policy.make("stream", others, PIECE, LINE), PIECE, LINE)
        report(
            f"a stream: {missed:.1%} missed and {ratio:.2f} fetched; {alike.miss_rate:.1%} and "
            f"{alike.fetch_ratio:.2f} in the simulation"
        )
        self.assertEqual("fetched", ahead["state"], ahead)
        self.assertLess(missed, MISSED)
        self.assertLess(ratio, SENT * alike.fetch_ratio + ATTACHED / read)
        self.kill(node, device)

    def test_a_boot_whose_agent_is_killed_is_not_recorded(self):
        node, _ = self.nodes
        device = self.create(node, "vm1")
        self.read(node, device)
        self.kill(node, device)
        time.sleep(45)  # longer than a boot that is over takes to be recorded
        self.assertIsNone(self.profile())

    def test_a_node_warms_at_volts_word_below_its_cap_and_its_next_agent_goes_on(self):
        first, second = self.nodes
        self.read(first, self.create(first, "vm1"))
        wait_until(self.profile, "a profile at Volt", 90, 0.5)
        image = f"/v1/images/{self.image}"
        self.deployment.ask("PUT", f"{image}/cap", {"rate": RATE})
        self.addCleanup(self.deployment.ask, "DELETE", f"{image}/cap")
        begun = second.received_bytes()
        self.deployment.ask("POST", f"{image}/warmups", {"hosts": [second.name]})
        wait_until(lambda: second.received_bytes() - begun > 4 * MIB, "a part of it", 60, 0.1)
        self.restart_agent(second)

        samples = [(time.monotonic(), second.received_bytes())]
        while self.warmup()["state"] in ("asked", "fetching"):
            time.sleep(0.25)
            samples.append((time.monotonic(), second.received_bytes()))
        warmup = self.warmup()
        self.assertEqual(("warm", ""), (warmup["state"], warmup["detail"]))
        self.assertEqual(warmup["wanted"], warmup["there"])
        # before that, the next agent has the image attached, and waits for its share
        runs = groupby(pairwise(samples), lambda pair: pair[1][1] - pair[0][1] > PIECE)
        moving = max((list(run) for flows, run in runs if flows), key=len)
        (begin, before), (end, after) = moving[0][1], moving[-1][1]
        rate = (after - before) / (end - begin)
        self.assertLess(rate, 1.1 * RATE)
        self.assertGreater(rate, 0.8 * RATE)
        self.assertLess(samples[-1][1] - begun, SENT * READ * PIECE + ATTACHED)

        before = second.received_bytes()
        self.read(second, self.create(second, "vm2"))
        self.assertLess(second.received_bytes() - before, LATE * READ * PIECE)
        report(f"cap of {RATE / MIB:.0f} MiB/s for what is fetched ahead: {rate / MIB:.2f} MiB/s")

    def warmup(self):
        """How far the only node is that Volt asked."""
        (found,) = self.deployment.ask("GET", f"/v1/images/{self.image}/warmups")["warmups"]
        return found
