"""Words of the plug-in can be translated, and its translations are complete."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import testtools

from lab.rootfs import TOP
from tests.horizon.dashboard import BIN


def messages(path):
    """Return the texts of a catalog, with their translations."""
    joined = re.sub(r'"\n"', "", path.read_text())
    return dict(re.findall(r'^msgid "(.+)"\nmsgstr "(.*)"$', joined, re.MULTILINE))


class TranslationTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copytree(TOP / "horizon_patches", self.folder, dirs_exist_ok=True)
        command = [BIN / "python", "-m", "django", "extract_messages", "-m", "virtman_dashboard"]
        environment = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder),
            "DJANGO_SETTINGS_MODULE": "virtman_dashboard.tests.settings",
        }
        subprocess.run(command, cwd=self.folder, env=environment, check=True, capture_output=True)
        self.locale = self.folder / "virtman_dashboard" / "locale"

    def test_words_of_all_kinds_of_files_are_found(self):
        python_and_django = messages(self.locale / "django.pot")
        scripts_and_angular = messages(self.locale / "djangojs.pot")
        self.assertIn("Volt does not answer.", python_and_django)
        self.assertIn("Choose an image to see its trees.", python_and_django)
        self.assertIn("Boot from snapshot (VirtMan)", scripts_and_angular)
        self.assertIn("What these servers need", scripts_and_angular)
        self.assertIn("fed by the source", scripts_and_angular)

    def test_no_word_is_left_untranslated(self):
        for domain in ("django", "djangojs"):
            wanted = messages(self.locale / f"{domain}.pot")
            for catalog in self.locale.glob(f"*/LC_MESSAGES/{domain}.po"):
                found = messages(catalog)
                self.assertEqual(set(wanted), {text for text in found if found[text]}, catalog)
