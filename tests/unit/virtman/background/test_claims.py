"""Whoever is busy with an image is alone with it."""

import threading

import testtools

from virtman.background.claims import Claims


class ClaimsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.lock = threading.Lock()
        self.claims = Claims(self.lock)
        self.done = []

    def has(self, image):
        with self.lock:
            return image in self.claims

    def work(self, image):
        with self.claims.claimed(image):
            self.done.append(image)

    def test_another_waits_until_the_image_is_given_back(self):
        others = [threading.Thread(target=self.work, args=("a",)) for _ in range(3)]
        with self.claims.claimed("a"):
            for one in others:
                one.start()
            self.work("b")
            self.assertEqual(["b"], self.done)
            self.assertTrue(self.has("a"))
        for one in others:
            one.join()
        self.assertEqual(["b", "a", "a", "a"], self.done)
        self.assertFalse(self.has("a"))

    def test_whoever_fails_gives_it_back(self):
        def fail():
            with self.claims.claimed("a"):
                raise ValueError

        self.assertRaises(ValueError, fail)
        self.assertFalse(self.has("a"))
