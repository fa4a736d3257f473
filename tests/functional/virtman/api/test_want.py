"""Whoever waits for an image hears how far it is, until Volt knows it."""

import json

from click.testing import CliRunner

from tests.functional.virtman.api.test_client import ServedCase
from tests.functional.virtman.base import SIZE
from virtman import errors
from virtman.api import answers
from virtman.cmd.shell import shell
from virtman.node import images
from volt.model.imports import Importing, Told

IMAGE = "glance-1"


class WantTest(ServedCase):
    def setUp(self):
        super().setUp()
        self.imports = self.bed.volt.ground.imports

    def tell(self, state, detail="converting"):
        self.imports.tell(IMAGE, Told("storage1", state, 1 << 20, 2 << 20, detail))

    def wanted(self):
        return {one.image: one.waiting for one in self.imports.index()}

    def beat(self):
        """Have Volt hear at once if there is something new."""
        asked = self.node.agent.images.needs_changed
        self.assertTrue(asked.is_set())
        asked.clear()
        self.node.beat()

    def test_volt_hears_at_once_that_it_is_wanted(self):
        found = self.client.want(IMAGE)
        self.assert_is(answers.WantAnswer, found)
        self.assertEqual(("wanted", None), (found["state"], found["size"]))
        self.beat()
        self.assertEqual({IMAGE: 1}, self.wanted())
        self.client.want(IMAGE)
        self.assertFalse(self.node.agent.images.needs_changed.is_set())

    def test_it_is_wanted_no_more_after_a_while(self):
        self.patch(images, "WISH", 0.0)
        self.client.want(IMAGE)
        self.beat()
        self.assertEqual({}, self.wanted())

    def test_who_waits_hears_how_far_it_is(self):
        seen = []

        def show(found):
            seen.append((found["state"], found["done"], found["total"]))

        def pause(seconds):
            if len(seen) == 1:
                self.beat()
                self.tell(Importing.RUNNING)
            else:
                self.bed.register(IMAGE)

        found = self.client.await_image(IMAGE, show, pause=pause)
        self.assertEqual(("known", SIZE), (found["state"], found["size"]))
        self.assertEqual([("wanted", 0, 0), ("running", 1 << 20, 2 << 20)], seen)

    def test_who_waits_hears_why_it_failed(self):
        self.client.want(IMAGE)
        self.beat()
        self.tell(Importing.FAILED, "its hash is wrong")
        error = self.assertRaises(errors.ImportFailed, self.client.await_image, IMAGE)
        self.assertEqual(f"its hash is wrong (image {IMAGE}, at storage1)", str(error))

    def test_who_waits_in_vain_hears_what_to_look_for(self):
        error = self.assertRaises(
            errors.ImageUnknown, self.client.await_image, IMAGE, patience=1, pause=lambda s: None
        )
        self.assertIn("check that virtman-images runs", str(error))

    def test_a_command_waits_too(self):
        words = ["--socket", self.socket, "image", "want"]
        done = CliRunner().invoke(shell, [*words, "debian"])
        self.assertEqual((0, "debian: 8M, known to Volt\n"), (done.exit_code, done.output))
        done = CliRunner().invoke(shell, [*words, "--json", "debian"])
        self.assertEqual("known", json.loads(done.output)["state"])
        self.client.want(IMAGE)
        self.beat()
        self.tell(Importing.FAILED, "its hash is wrong")
        done = CliRunner().invoke(shell, [*words, IMAGE])
        self.assertIsInstance(done.exception, errors.ImportFailed)
