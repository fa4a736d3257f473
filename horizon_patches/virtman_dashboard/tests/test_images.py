"""Which images of VirtMan's are a project's."""

from types import SimpleNamespace

from django.test import SimpleTestCase

from virtman_dashboard.project.images import Image, of_project

NUMBER = "0c0ffee0-1111-2222-3333-444455556666"


def thing(number, name=""):
    return SimpleNamespace(id=number, name=name)


def image(name):
    return {"name": name, "size": 1024, "hosts": 2, "created_at": "2026-11-20T10:00:00+00:00"}


class OfProjectTest(SimpleTestCase):
    def of_project(self, images, snapshots=(), of_glance=None):
        def glance():
            self.assertIsNotNone(of_glance)
            return of_glance

        seen = {"snapshot": lambda: snapshots, "image": glance}
        return of_project([image(name) for name in images], seen)

    def test_only_images_of_its_own_snapshots_are_a_project_s(self):
        found = self.of_project(
            ["snapshot-a", "snapshot-foreign", "debian-12"],
            [thing("a", "web"), thing("b", "unused")],
        )
        expected = Image("snapshot-a", "snapshot", "a", "web", 1024, 2, "2026-11-20T10:00:00+00:00")
        self.assertEqual([expected], found)

    def test_an_image_of_glance_is_there_in_each_size(self):
        found = self.of_project(
            [f"image-{NUMBER}-2", f"image-{NUMBER}-10", "image-foreign-2"],
            of_glance=[thing(NUMBER, "debian"), thing("unused")],
        )
        self.assertEqual(
            [(f"image-{NUMBER}-{size}", "image", NUMBER, "debian") for size in (2, 10)],
            [(one.id, one.kind, one.source, one.name) for one in found],
        )

    def test_a_snapshot_without_a_name_has_its_id(self):
        (found,) = self.of_project(["snapshot-a"], [thing("a")])
        self.assertEqual("a", found.name)
