"""Users have whole images copied, see how far that is, and give copies back."""

import json

import fixtures
from click.testing import CliRunner

from tests.functional.virtman.api.test_client import ServedCase
from tests.functional.virtman.base import SIZE
from virtman import errors
from virtman.api import answers
from virtman.cmd.shell import shell
from virtman.image import whole

IMAGE = "filled"


class CopyTest(ServedCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MockPatchObject(whole, "LOOK", 0.01))
        self.bed.fill(IMAGE, bytes(range(256)) * (SIZE // 256))

    def command(self, *words):
        return CliRunner().invoke(shell, ["--socket", self.socket, "image", *words])

    def shown(self):
        return self.command("show", IMAGE).output

    def test_a_client_waits_until_no_parents_are_needed(self):
        seen = []
        begun = self.client.hydrate(IMAGE, 1 << 30)
        self.assert_is(answers.CopyAnswer, begun)
        copy = self.client.await_copy(IMAGE, seen.append)
        self.assertEqual(("whole", 1 << 30, ""), (copy["state"], copy["rate"], copy["verdict"]))
        found = self.client.image(IMAGE)
        self.assert_is(answers.ImageAnswer, found)
        self.assertEqual((True, [], [], copy), (
            found["local"], found["parents"], found["instances"], found["copy"]))  # fmt: skip
        self.assertEqual({"checked": SIZE, "dropped": []}, self.client.scrub(IMAGE))
        self.client.release(IMAGE)
        found = self.client.image(IMAGE)
        self.assertEqual((False, None), (found["local"], found["copy"]))
        self.assertTrue(found["parents"])

    def test_commands_tell_the_same(self):
        done = self.command("hydrate", "--wait", IMAGE)
        self.assertEqual((0, f"{IMAGE}: whole 100 %\n"), (done.exit_code, done.output))
        self.assertIn("  8388608  whole\n", self.command("list").output)
        shown = self.shown()
        self.assertIn("state: whole\nparents: none\n", shown)
        self.assertIn("bytes, no limit\n", shown)
        self.assertTrue(json.loads(self.command("show", "--json", IMAGE).output)["local"])
        self.assertEqual(0, self.command("release", IMAGE).exit_code)
        self.assertIn("state: cold\n", self.shown())

    def test_one_that_holds_back_says_so(self):
        self.node.agent.images.find(IMAGE).share.want(is_wanted=True)
        self.command("hydrate", IMAGE)
        told = "bytes, no limit; it holds back, as VMs wait for reads\n"
        self.await_(lambda: told in self.shown(), self.shown)
        self.assertEqual(0, self.command("release", IMAGE).exit_code)

    def test_a_copy_that_stops_says_why(self):
        self.useFixture(fixtures.MockPatchObject(whole.Copier, "_wrong", lambda copier: [0]))
        done = self.command("hydrate", "--wait", IMAGE)
        self.assertEqual(1, done.exit_code)
        self.assertIn(f"{IMAGE} is not whole: the copy of image {IMAGE} is wrong", done.output)
        self.assertIn("trouble: the copy", self.shown())
        self.assertIn("cold, stopped 99 %", self.command("list").output)

    def test_what_is_not_there_is_said(self):
        self.assertRaises(errors.CopyUnknown, self.client.release, IMAGE)
        self.assertRaises(errors.ImageUnknown, self.client.image, IMAGE)
        self.assertRaises(errors.ImageUnknown, self.client.hydrate, "other")

    def test_metrics_have_it(self):
        self.client.hydrate(IMAGE)
        self.client.await_copy(IMAGE)
        samples = self.node.samples()
        self.assertEqual(1, samples["virtman_image_local", IMAGE])
        self.assertEqual(
            samples["virtman_copy_bytes", IMAGE, "wanted"],
            samples["virtman_copy_bytes", IMAGE, "there"],
        )
