"""Which images of VirtMan's are a project's."""

from types import SimpleNamespace

from django.test import SimpleTestCase

from virtman_dashboard.project.images import Image, of_project


def snapshot(number, name=""):
    return SimpleNamespace(id=number, name=name)


def image(name):
    return {"name": name, "size": 1024, "hosts": 2, "created_at": "2026-11-20T10:00:00+00:00"}


class OfProjectTest(SimpleTestCase):
    def test_only_images_of_its_own_snapshots_are_a_project_s(self):
        images = [image("snapshot-a"), image("snapshot-foreign"), image("debian-12")]
        found = of_project([snapshot("a", "web"), snapshot("b", "unused")], images)
        self.assertEqual([Image("a", "web", 1024, 2, "2026-11-20T10:00:00+00:00")], found)

    def test_a_snapshot_without_a_name_has_its_id(self):
        (found,) = of_project([snapshot("a")], [image("snapshot-a")])
        self.assertEqual("a", found.name)
