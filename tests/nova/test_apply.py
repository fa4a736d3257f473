"""nova_patches/apply on a real release of nova: all or nothing, and back again."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from unittest import mock

import testtools

APPLY = Path(__file__).resolve().parents[2] / "nova_patches" / "apply"
RELEASE = Path(os.environ["NOVA_RELEASE"])


def load():
    loader = SourceFileLoader("apply", str(APPLY))
    module = module_from_spec(spec_from_loader("apply", loader))
    sys.modules["apply"] = module
    loader.exec_module(module)
    return module


apply = load()


def content(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class ApplyTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        # What the patches are about is all that apply looks at.
        for path in [*apply.Nova(RELEASE)._paths(), "PKG-INFO", "nova/__init__.py"]:
            if (RELEASE / path).exists():
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(RELEASE / path, self.folder / path)
        self.released = content(self.folder)

    def run_apply(self, *arguments):
        command = [sys.executable, str(APPLY), *arguments, str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def assert_patched(self):
        self.assertIn(b"virtman.adopt(", (self.folder / "nova/compute/api.py").read_bytes())

    def assert_released(self):
        self.assertEqual(self.released, content(self.folder))

    def test_undo_brings_back_every_byte(self):
        self.assertEqual(0, self.run_apply().returncode)
        self.assert_patched()
        self.assertEqual(0, self.run_apply("--undo").returncode)
        self.assert_released()

    def test_twice_is_as_once(self):
        self.run_apply()
        patched = content(self.folder)
        again = self.run_apply()
        self.assertEqual(0, again.returncode)
        self.assertIn("already", again.stdout)
        self.assertEqual(patched, content(self.folder))
        self.run_apply("--undo")
        self.assertEqual(0, self.run_apply("--undo").returncode)
        self.assert_released()

    def test_every_patch_is_in_the_series(self):
        patches = sorted(APPLY.parent.glob("*.patch"))
        self.assertEqual(patches, sorted(apply.PATCHES))

    def test_quilt_makes_the_same_of_the_series(self):
        by_quilt = self.folder / "quilt"
        shutil.copytree(self.folder, by_quilt)
        quilt = ["quilt", "--quiltrc", "-", "push", "-a", "-q", "--fuzz=0"]
        environment = {**os.environ, "QUILT_PATCHES": str(APPLY.parent)}
        subprocess.run(quilt, cwd=by_quilt, env=environment, check=True, capture_output=True)
        shutil.rmtree(by_quilt / ".pc")
        made = content(by_quilt)
        shutil.rmtree(by_quilt)
        self.run_apply()
        shutil.rmtree(self.folder / "nova" / ".virtman")
        self.assertEqual(content(self.folder), made)

    def test_another_release_is_refused(self):
        note = self.folder / "PKG-INFO"
        note.write_text(note.read_text().replace("Version: 34.0.0", "Version: 34.0.1"))
        before = content(self.folder)
        refused = self.run_apply()
        self.assertEqual(1, refused.returncode)
        self.assertIn("34.0.1", refused.stderr)
        self.assertEqual(before, content(self.folder))

    def test_git_clone_that_pip_has_installed_says_its_release(self):
        (self.folder / "nova.egg-info").mkdir()
        (self.folder / "PKG-INFO").rename(self.folder / "nova.egg-info" / "PKG-INFO")
        self.assertEqual(0, self.run_apply().returncode)
        self.assert_patched()

    def test_nova_that_somebody_changed_is_left_alone(self):
        api = self.folder / "nova/compute/api.py"
        api.write_text(api.read_text().replace("elif root_in_image_bdms:", "elif in_image:"))
        before = content(self.folder)
        self.assertEqual(1, self.run_apply().returncode)
        self.assertEqual(before, content(self.folder))

    def test_change_of_a_patched_file_is_not_lost(self):
        self.run_apply()
        api = self.folder / "nova/compute/api.py"
        api.write_text(api.read_text() + "\n# ours\n")
        before = content(self.folder)
        for arguments in ((), ("--undo",)):
            refused = self.run_apply(*arguments)
            self.assertEqual(1, refused.returncode)
            self.assertIn("api.py was changed", refused.stderr)
            self.assertEqual(before, content(self.folder))

    def test_reinstalled_nova_is_patched_again(self):
        self.run_apply()
        for path, was in self.released.items():
            (self.folder / path).write_bytes(was)
        self.assertIn("is patched:", self.run_apply().stdout)
        self.run_apply("--undo")
        self.assert_released()

    def test_whatever_interrupts_it_the_next_run_puts_it_right(self):
        for undo in (False, True):
            for moment in range(40):
                if not self.interrupted(moment, undo):
                    break
                self.assertEqual(0, self.run_apply().returncode)
                self.assert_patched()
                self.assertEqual(0, self.run_apply("--undo").returncode)
                self.assert_released()
            # What apply writes: where the originals are, the file, and that it is done.
            self.assertEqual(1 if undo else 3, moment)
            self.run_apply("--undo")

    def interrupted(self, moment, undo):
        """Have apply, or undo, end just before it replaces its file number ``moment``."""
        nova = apply.Nova(self.folder)
        if undo:
            nova.apply()
        replace, left = apply._replace, iter(range(moment))

        def die(target, content):
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(target, content)

        with mock.patch.object(apply, "_replace", die):
            try:
                nova.undo() if undo else nova.apply()
            except KeyboardInterrupt:
                return True
        return False
