"""Users see what an image has in common with others, and which of them it is read from."""

from click.testing import CliRunner

from tests.functional.virtman.api.test_client import ServedCase
from virtman.api import answers
from virtman.cmd.shell import shell
from virtman.model.basis import Run


class LendersTest(ServedCase):
    def command(self, *words):
        return CliRunner().invoke(shell, ["--socket", self.socket, "image", *words]).output

    def test_clients_and_commands_tell_it(self):
        self.bed.network.contents["v2"] = "v2"
        self.bed.register("v2", runs={"debian": [Run(0, 0, 0, 256)]})
        self.client.create("vm2", "v2")
        based = {"images": ["debian"], "shared": 1 << 20}
        found = self.client.image("v2")
        self.assert_is(answers.ImageAnswer, found)
        self.assertEqual((based, []), (found["based"], found["lenders"]))
        self.assertIn("based on: debian (1M), read from: none\n", self.command("show", "v2"))
        self.client.destroy("vm2")
        self.client.drop("v2")
        self.client.create("vm1", "debian")
        self.client.create("vm2", "v2")
        self.assertEqual(["debian"], self.client.image("v2")["lenders"])
        self.assertIsNone(self.client.image("debian")["based"])
        self.assertIn("cold, shares debian", self.command("list"))
        self.assertIn("read from: debian\n", self.command("show", "v2"))
