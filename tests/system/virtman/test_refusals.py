"""What is asked wrongly, or cannot be done: a clear error, and nothing has changed."""

from typing import ClassVar

from lab.waiting import wait_until
from tests.system.virtman.base import MIB, DeployedCase


class TestRefusals(DeployedCase):
    name = "refusals"
    node_count = 1
    size = 8 * MIB
    options: ClassVar = {"image": {"attach_timeout": 3}}

    @property
    def node(self):
        return self.nodes[0]

    def add_source(self, image, path):
        where = ["--ip", self.storage.address, *self.deployment.source_options(self.storage)]
        return self.refused(self.storage, "source", "add", image, path, *where)

    def state(self, node):
        if node is self.storage:  # it runs no agent
            listed = node.run(["find", "/sys/kernel/config/target", "-name", "*virtman*"]).stdout
            return listed, self.images()
        return super().state(node)

    def test_an_unknown_image(self):
        said = self.refused(self.node, "create", "nosuch", "vm1")
        self.assertIn("nosuch", said)
        self.assertIn("virtman.image.unknown", said)

    def test_names_with_a_slash_or_a_space(self):
        for image, vm in (("a/b", "vm1"), ("a b", "vm1"), (self.image, "a/b"), (self.image, "a b")):
            said = self.refused(self.node, "create", image, vm)
            self.assertIn("virtman.name.invalid", said)
            self.assertIn("lower-case letters", said)
        for image in ("a/b", "a b"):
            self.assertIn("virtman.name.invalid", self.add_source(image, "/dev/ubdc"))

    def test_a_size_that_is_not_a_multiple_of_512(self):
        self.storage.run(["truncate", "-s", "1000", "/tmp/odd"])
        said = self.add_source("odd", "/tmp/odd")
        self.assertIn("multiple of 512", said)
        self.assertIn("virtman.image.size", said)

    def test_a_source_that_does_not_answer(self):
        portal = {"ip": self.node.address, "port": 3999, "iqn": "iqn.2003-01.org.example:x",
                  "lun": 0}  # fmt: skip
        body = {"name": "dead", "size": 1024, "source": portal}
        before = self.images()
        answer = self.deployment.request("POST", "/v1/images", body)
        self.assertEqual(400, answer.status_code)
        self.assertEqual("volt.image.source_unreachable", answer.json()["error"]["code"])
        self.assertEqual(before, self.images())

    def test_a_source_that_stopped_answering(self):
        self.storage.cut()
        try:
            said = self.refused(self.node, "create", self.image, "vm1")
        finally:
            self.storage.heal()
        self.assertIn("virtman.parent.unreachable", said)
        self.assertIn("does not answer", said)

    def test_a_second_vm_of_the_same_name(self):
        device = self.create(self.node, "vm1")
        said = self.refused(self.node, "create", self.image, "vm1")
        self.assertIn("virtman.instance.exists", said)
        self.node.run(["dd", f"if={device}", "of=/dev/null", "count=1"])

    def test_too_little_space_for_the_exception_store(self):
        free = self.node.run(["df", "--output=avail", "-B1", "/var/lib/virtman"]).stdout.split()[1]
        hog = "/var/lib/virtman-hog"
        self.node.run(["fallocate", "-l", str(int(free) - 4 * MIB), hog])
        try:
            said = self.refused(self.node, "create", self.image, "vm1")
        finally:
            self.node.run(["rm", hog])
        self.assertIn("virtman.store.no_space", said)

    def test_a_device_in_use_is_not_destroyed(self):
        device = self.create(self.node, "vm1")
        pid = self.node.spawn(["sh", "-c", f"exec 3<{device}; exec sleep 60"], log="holder")
        try:
            said = self.refused(self.node, "destroy", "vm1")
        finally:
            self.node.run(["kill", str(pid)])
        self.assertIn("virtman.device.busy", said)
        self.node.run(["dd", f"if={device}", "of=/dev/null", "count=1"])


class TestMissingModule(DeployedCase):
    name = "modules"
    node_count = 1
    size = 8 * MIB

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        node = cls.nodes[0]
        switch = "/sys/module/dm_switch/initstate"
        # The agent answers before it has loaded what it needs.
        wait_until(
            lambda: node.run(["grep", "live", switch], check=False).status == 0,
            "the first agent's modules",
            60,
            0.2,
        )
        cls.deployment.kill_agent(node)
        # as on a host whose kernel was installed without its extra modules
        node.run(["sh", "-ec", "rmmod dm_switch; mv $(modinfo -n dm-switch) /tmp; depmod -a"])
        cls.start_agent(node)

    def test_the_missing_module_is_named_and_how_to_get_it(self):
        said = self.refused(self.nodes[0], "create", self.image, "vm1")
        self.assertIn("virtman.kernel.modules_missing", said)
        self.assertIn("dm-switch", said)
        self.assertIn("install", said)
        self.assertNotIn("dm-snapshot", said)
