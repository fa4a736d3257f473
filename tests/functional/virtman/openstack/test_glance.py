"""What Glance says of an image, and how it can fail to."""

import testtools

from lab.ports import free_port
from tests.functional.virtman.openstack.glance import TOKEN, FakeGlance, glance_at
from virtman.openstack.glance import CHUNK, GlanceUnreachable, Image, ImageGone


class GlanceTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.server = self.useFixture(FakeGlance())
        self.glance = glance_at(self.server.url)

    def download(self, image):
        return list(self.glance.download(image))

    def test_an_image_is_what_glance_says(self):
        image = self.server.upload(b"data", "qcow2", direct_url="file:///images/1")
        said = self.server.images[image]
        self.assertEqual(
            Image(image, "active", "qcow2", "bare", 4, "sha512", said["os_hash_value"],
                  said["checksum"], ("file:///images/1",)),
            self.glance.show(image),
        )  # fmt: skip

    def test_all_places_that_glance_shows_are_known_the_best_one_first(self):
        places = [{"url": url, "metadata": {}} for url in ("http://a/", "rbd://b/c/d/e")]
        image = self.server.upload(b"data", locations=places, direct_url="rbd://b/c/d/e")
        self.assertEqual(("rbd://b/c/d/e", "http://a/"), self.glance.show(image).places)

    def test_what_glance_does_not_know_of_an_image_is_left_out(self):
        unknown = dict.fromkeys(("size", "os_hash_algo", "os_hash_value", "checksum"))
        image = self.server.upload(b"data", **unknown)
        self.assertEqual(
            Image(image, "active", "raw", "bare", 0, None, None, None, ()),
            self.glance.show(image),
        )

    def test_bytes_come_in_order_and_a_mib_at_a_time(self):
        data = b"1" * CHUNK + b"2" * CHUNK + b"3"
        chunks = self.download(self.server.upload(data))
        self.assertEqual([CHUNK, CHUNK, 1], [len(chunk) for chunk in chunks])
        self.assertEqual(data, b"".join(chunks))

    def test_an_image_that_is_deleted_or_not_there_yet_is_gone(self):
        self.assertRaises(ImageGone, self.glance.show, "unknown/../id")
        self.assertRaises(ImageGone, self.download, "unknown")
        for status in ("queued", "saving", "deleted", "deactivated"):
            image = self.server.upload(b"data", status=status)
            self.assertIn(status, str(self.assertRaises(ImageGone, self.glance.show, image)))

    def test_an_image_without_data_is_gone(self):
        image = self.server.upload(b"")
        self.server.data[image] = None
        self.assertRaises(ImageGone, self.download, image)

    def test_faults_of_glance_can_pass_and_tell_no_secrets(self):
        image = self.server.upload(b"data")
        for self.server.status in (401, 403, 429, 500, 503):
            for verb in (self.glance.show, self.download):
                error = self.assertRaises(GlanceUnreachable, verb, image)
                self.assertIn(str(self.server.status), str(error))
                self.assertNotIn(TOKEN, str(error))

    def test_glance_that_is_away_is_unreachable(self):
        away = glance_at(f"http://127.0.0.1:{free_port()}/v2")
        error = self.assertRaises(GlanceUnreachable, away.show, "image")
        self.assertNotIn(TOKEN, str(error))

    def test_what_is_not_glance_is_found_out(self):
        image = self.server.upload(b"data")
        self.server.images[image] = {"versions": []}
        self.assertRaises(GlanceUnreachable, self.glance.show, image)

    def test_a_download_that_ends_early_is_no_download(self):
        image = self.server.upload(b"data" * CHUNK)
        self.server.breaks_at = 2 * CHUNK + 1
        self.assertRaises(GlanceUnreachable, self.download, image)
