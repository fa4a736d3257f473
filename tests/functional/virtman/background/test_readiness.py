"""When what starts after the agent may start."""

import os
import socket
import tempfile
from contextlib import ExitStack
from unittest import mock

from tests.functional.virtman.base import FOREVER, TestCase
from virtman.background.recovery import Recovery


class ReadinessTest(TestCase):
    def rebooted(self):
        """A node with a VM of before, whose image cannot be had yet."""
        node = self.bed.node()
        node.create("vm1")
        node.stop()
        node.reboot()
        self.bed.source_dies()
        return node

    def test_who_starts_afterwards_waits_for_the_devices_of_before(self):
        node = self.rebooted()
        with Manager() as manager, node.process.here():
            recovery = Recovery(node.agent, FOREVER)
            recovery.start()
            try:
                self.assertEqual({"STATUS": "not served yet: vm1"}, manager.hears())
                self.bed.source_returns()
                said = {}
                while "READY" not in said:
                    said = manager.hears()
                self.assertIn("virtman_debian_vm_vm1", node.kernel.state()["dm"])
            finally:
                recovery.stop()

    def test_who_starts_afterwards_does_not_wait_for_ever(self):
        node = self.rebooted()
        with Manager() as manager, node.process.here():
            recovery = Recovery(node.agent, 0)
            recovery.start()
            try:
                self.assertEqual({"READY": "1"}, manager.hears())
                self.assertEqual({"STATUS": "not served yet: vm1"}, manager.hears())
            finally:
                self.bed.source_returns()
                recovery.stop()


class Manager:
    """A service manager that started this process: it hears what the agent says of itself."""

    def __enter__(self):
        self.cleanups = ExitStack()
        folder = self.cleanups.enter_context(tempfile.TemporaryDirectory())
        self.end = self.cleanups.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self.end.bind(f"{folder}/notify")
        self.end.settimeout(30)
        here = {"NOTIFY_SOCKET": f"{folder}/notify"}
        self.cleanups.enter_context(mock.patch.dict(os.environ, here))
        return self

    def __exit__(self, *exc):
        self.cleanups.close()

    def hears(self):
        """The next message's variables."""
        lines = self.end.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)
