"""Who does not know an image's secret gets in nowhere; those who do may hear of a new one."""

import time
from typing import ClassVar

from lab.deployment import SOCKET
from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase, report, sha256

IQN = "iqn.2026-11.org.virtman"
REFUSED = 24
CONFIGFS = "/sys/kernel/config/target/iscsi"

# Prints each command line that any account can see. It starts nothing and never sleeps: some
# processes live for less than a tenth of a second.
LISTING = """
import contextlib, glob
seen = {b""}
while True:
    for file in glob.glob("/proc/[0-9]*/cmdline"):
        line = b""
        with contextlib.suppress(OSError), open(file, "rb") as words:
            line = words.read()
        if line not in seen:
            seen.add(line)
            print(line.decode(), flush=True)
"""


class TestSecrets(DeployedCase):
    name = "secrets"
    node_count = 2
    size = 64 * MIB
    link_rate = "20mbit"
    options: ClassVar = {"DEFAULT": {"debug": True}}

    def placement(self, node):
        return self.deployment.ask("GET", f"/v1/images/{self.image}/hosts/{node.name}")

    def log_in(self, node, where, iqn, secret):
        """Try by hand, as somebody would who knows open-iscsi; return iscsiadm's status."""
        target = ["iscsiadm", "-m", "node", "-T", iqn, "-p", f"{where}:3260"]
        node.run([*target, "-o", "new"])
        if secret:
            for name, value in (("authmethod", "CHAP"), ("username", "virtman"),
                                ("password", secret)):  # fmt: skip
                node.run([*target, "-o", "update", "-n", f"node.session.auth.{name}", "-v", value])
        status = node.run([*target, "--login"], check=False).status
        node.run([*target, "-o", "delete"])
        return status

    def test_a_stranger_logs_in_neither_to_an_export_nor_to_the_source(self):
        node, stranger = self.nodes
        self.create(node, "vm1")
        for where, who in ((node, node.name), (self.storage, f"source:{self.storage.name}")):
            iqn = f"{IQN}:{who}:{self.image}"
            for secret in ("", "guessed-secret"):
                self.assertEqual(REFUSED, self.log_in(stranger, where.address, iqn, secret))
            served = where.run(["cat", f"{CONFIGFS}/{iqn}/tpgt_1/attrib/authentication"])
            self.assertEqual("1", served.stdout.strip())

    def test_secrets_show_neither_in_logs_nor_to_other_accounts(self):
        parent, child = self.nodes
        pids = [node.spawn(["python3", "-c", LISTING], log="listing") for node in self.nodes]
        for node in self.nodes:
            self.create(node, f"on-{node.name}")
        for node, pid in zip(self.nodes, pids, strict=True):
            node.run(["kill", str(pid)])
        secrets = {self.placement(parent)["chap"]["secret"]}
        secrets |= {
            peer["chap"]["secret"]
            for feed in self.placement(child)["stripes"]
            for peer in (feed["parent"], feed["standby"])
            if peer is not None
        }
        self.assertEqual(2, len(secrets))
        for node in self.nodes:
            shown = (node.share / "listing").read_bytes() + (node.share / "agent.log").read_bytes()
            self.assertIn(b"iscsiadm", shown)
            for secret in secrets:
                self.assertNotIn(secret.encode(), shown)
                look = ["setpriv", "--reuid=nobody", "--clear-groups", "grep", "-rlsF", secret]
                places = ["/etc/iscsi", CONFIGFS, "/var/lib/virtman", "/run"]
                self.assertEqual("", node.run([*look, *places], check=False).stdout)

    def test_an_agent_answers_its_group_and_nobody_else(self):
        node = self.nodes[0]
        mode = node.run(["stat", "-c", "%A %U %G", SOCKET]).stdout.strip()
        self.assertEqual("srw-rw---- virtman virtman", mode)
        asked = ["virtman", "list", "--json"]
        member = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--groups=virtman"]
        self.assertEqual("[]", node.run([*member, *asked]).stdout.strip())
        stranger = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        done = node.run([*stranger, *asked], check=False)
        self.assertEqual((1, ""), (done.status, done.stdout))
        self.assertIn("Permission denied", done.stderr)

    def test_a_new_secret_comes_into_use_while_a_vm_reads(self):
        parent, child = self.nodes
        self.create(parent, "vm1")
        device = self.create(child, "vm2")
        old = self.placement(child)
        sessions = child.run(["iscsiadm", "-m", "session"]).stdout
        pid = child.spawn(["sha256sum", device], log="sum")
        begin = time.monotonic()
        new = self.renew_secret()
        self.assertNotEqual(old["chap"]["secret"], new)
        report(f"a new secret was in use on both hosts after {time.monotonic() - begin:.2f} s")
        self.assertIsNotNone(child.alive())
        child.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=180)
        self.assertEqual(self.sha256, (child.share / "sum").read_text().split()[0])
        self.assertEqual(sessions, child.run(["iscsiadm", "-m", "session"]).stdout)
        records = child.run(["sh", "-c", "cat /etc/iscsi/nodes/*:node1:*/*"]).stdout
        self.assertIn(new, records)
        # the old one opens nothing any more
        iqn = f"{IQN}:{parent.name}:{self.image}"
        self.storage.run(["modprobe", "iscsi_tcp"])
        secret = old["chap"]["secret"]
        self.assertEqual(REFUSED, self.log_in(self.storage, parent.address, iqn, secret))

    def test_a_session_that_was_cut_off_proves_the_new_secret(self):
        self.paths_may_fail = True
        parent, child = self.nodes
        self.create(parent, "vm1")
        device = self.create(child, "vm2")
        self.settled(child)
        new = self.renew_secret()
        child.cut()
        log = child.share / "agent.log"
        wait_until(lambda: f"the kernel of {parent.name} is silent" in log.read_text(),
                   "the parent being given up", 20)  # fmt: skip
        child.heal()
        wait_until(lambda: self.proved(child, parent) == [new], "a login with the new secret", 60)
        self.assertEqual(self.sha256, sha256(child, device))

    def renew_secret(self):
        """Have the image's secret made anew, and all hosts know it; return it."""
        self.deployment.ask("POST", f"/v1/images/{self.image}/chap")
        new = self.placement(self.nodes[1])["chap"]["secret"]
        for node in self.nodes:
            file = f"{CONFIGFS}/{IQN}:{node.name}:{self.image}/tpgt_1/auth/password"
            wait_until(lambda node=node, file=file: new in node.run(["cat", file]).stdout,
                       f"the new secret at {node.name}", 20, 0.05)  # fmt: skip
        return new

    def proved(self, child, parent):
        """What a host's sessions with a parent proved, as its kernel knows it."""
        look = f"""cd /sys/class/iscsi_session && for one in session*; do
            grep -q :{parent.name}: $one/targetname && cat $one/password; done"""
        return child.run(["sh", "-c", look], check=False).stdout.split()

    def test_a_new_placement_reaches_a_host_in_a_second(self):
        parent, child = self.nodes
        self.create(parent, "vm1")
        self.create(child, "vm2")
        self.settled(child)
        log = child.share / "agent.log"
        before = log.read_text().count(": placement ")
        with self.agent_held(parent):
            self.deployment.ask("DELETE", f"/v1/images/{self.image}/hosts/{parent.name}")
            begin = time.monotonic()
            wait_until(lambda: log.read_text().count(": placement ") > before,
                       "the placement", 20, 0.01)  # fmt: skip
            passed = time.monotonic() - begin
        report(f"a placement reached its host {passed:.2f} s after the change")
        self.assertLess(passed, 1)

    def settled(self, node):
        """Wait until a host uses the place that Volt has for it."""
        wait_until(lambda: self.placement(node)["state"] == "ready", "the placement in use", 20)
