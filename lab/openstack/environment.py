"""The Python environments that OpenStack's programs run in, built once for each list of packages.

control   keystone, placement, glance, cinder, nova and openstackclient
horizon   Horizon alone, whose libraries are not those of the others
heat      Heat, which only tests of it start
tempest   OpenStack's own tests of clouds

An environment is a virtual environment of Debian's own Python, which nodes have too: they see it
at the same path, read-only. So all of it is compiled when it is built.
"""

import fcntl
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import BuildFailed
from lab.rootfs import TOP, cache_folder, recipe_key

LOG = logging.getLogger(__name__)
PYTHON = "/usr/bin/python3"
PATCHES = TOP / "nova_patches"


@dataclass(frozen=True)
class Environment:
    """One virtual environment."""

    folder: Path

    @property
    def packages(self) -> Path:
        """Where its modules are."""
        (found,) = self.folder.glob("lib/python3.*/site-packages")
        return found

    def program(self, name: str) -> Path:
        """Return the path of one of its commands."""
        return self.folder / "bin" / name

    def variables(self, *paths: Path) -> dict[str, str]:
        """Return what its commands run with; they find modules in ``paths`` first."""
        return {
            "PATH": f"{self.folder}/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": ":".join(map(str, paths)),
            "HOME": "/nonexistent",
            "LANG": "C.UTF-8",
        }


def control() -> Environment:
    """Return the environment of the services, with VirtMan's commands of openstackclient."""
    return _ensure("control", TOP, programs=("virtman-golden", "virtman-images"))


def horizon() -> Environment:
    """Return the environment of Horizon."""
    return _ensure("horizon")


def heat() -> Environment:
    """Return the environment of Heat."""
    return _ensure("heat")


def tempest() -> Environment:
    """Return the environment of tempest."""
    return _ensure("tempest")


def patched_nova(control: Environment) -> Path:
    """Return a folder with the package nova of an environment, and VirtMan's patches in it."""
    files = {path.name: path.read_bytes() for path in PATCHES.iterdir() if path.is_file()}
    files["environment"] = control.folder.name.encode()
    folder = cache_folder() / f"openstack-nova-{recipe_key(files)}"
    with only_one("nova"):
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            for found in control.packages.glob("nova*"):
                shutil.copytree(found, part / found.name, symlinks=True)
            run(PYTHON, PATCHES / "apply", part)
            compile_all(part)
            part.rename(folder)
    return folder


def _ensure(name: str, *projects: Path, programs: Sequence[str] = ()) -> Environment:
    """Build an environment unless there is one of the same packages.

    :param programs: of the projects; that they start shows that the list has what they need
    """
    listed = Path(__file__).with_name(f"{name}.txt")
    files = {"packages": listed.read_bytes(), "builder": Path(__file__).read_bytes()}
    files |= {
        f"{one.relative_to(TOP)}/{file}": (one / file).read_bytes()
        for one in projects
        for file in ("setup.cfg", "requirements.txt")
    }
    environment = Environment(cache_folder() / f"openstack-{name}-{recipe_key(files)}")
    complete = environment.folder / "complete"
    if not complete.exists():
        with only_one(name):
            if not complete.exists():
                LOG.info("building the environment %s", environment.folder.name)
                _build(environment, listed, projects)
                for program in programs:
                    run(environment.program(program), "--help")
                complete.touch()
    return environment


@contextmanager
def only_one(name: str) -> Iterator[None]:
    """Let one process at a time build."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / f"openstack-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(environment: Environment, listed: Path, projects: Sequence[Path]) -> None:
    """Build it where it stays, as its scripts hold their own path."""
    shutil.rmtree(environment.folder, ignore_errors=True)
    run(PYTHON, "-m", "venv", environment.folder)
    pip = [environment.program("pip"), "install", "--quiet", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--no-compile", "-r", listed)
    for project in projects:
        with tempfile.TemporaryDirectory() as temporary:
            # setuptools leaves folders of its own beside what it builds.
            copy = Path(temporary, project.name)
            shutil.copytree(project, copy, ignore=shutil.ignore_patterns(".*", "build"))
            run(*pip, "--no-deps", "--no-compile", copy)
    compile_all(environment.packages)


def compile_all(folder: Path) -> None:
    """Compile what is Python: nodes read it without being able to keep what they compiled."""
    run(PYTHON, "-m", "compileall", "-q", "-j", "2", folder, check=False)


def run(*words: str | Path, check: bool = True) -> None:
    """Run a step of a build; its output is shown only when it fails."""
    settings = {**os.environ, "PBR_VERSION": "0", "LC_ALL": "C.UTF-8"}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        settings.pop(name, None)
    command = [str(word) for word in words]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if check and done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise BuildFailed(f"{words[0]} ended with status {done.returncode}:\n{tail}")
