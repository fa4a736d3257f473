"""Images of a node's disks come from where their names say."""

import testtools

from virtman.openstack.sources import Sources

OF_GLANCE, GOLDEN = "glance-1", "snapshot-1"


class FakeImages:
    def __init__(self):
        self.asked = []

    def hold(self, image, volume):
        self.asked.append(("hold", image, volume))

    def share(self, image, host):
        self.asked.append(("share", image, host))

    def release(self, image):
        self.asked.append(("release", image))

    def held(self):
        return [GOLDEN]


class SourcesTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.glance, self.golden = FakeImages(), FakeImages()
        self.sources = Sources(self.glance, self.golden, True)

    def test_name_says_whose_it_is(self):
        for image, images in ((OF_GLANCE, self.glance), (GOLDEN, self.golden)):
            self.sources.hold(image, 2)
            self.sources.share(image, "b")
            self.sources.release(image)
            expected = [("hold", image, 2), ("share", image, "b"), ("release", image)]
            self.assertEqual(expected, images.asked)

    def test_what_is_held_is_asked_only_where_golden_volumes_are_used(self):
        self.assertEqual([GOLDEN], self.sources.held())
        self.assertEqual((), Sources(self.glance, self.golden, False).held())
