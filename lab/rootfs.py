"""How the nodes' root file system is built, once for each recipe.

    lab/images/node [+ another recipe] + requirements.txt + kernel modules
      -> mmdebstrap -> pip --target /opt/virtman -> modules, overlay, user
      -> mke2fs -d -> $VIRTMAN_CACHE/node-<key>/root.img

No mount and no loop device is made; an unfinished build never carries the final name.
"""

import compileall
import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.errors import BuildFailed

LOG = logging.getLogger(__name__)
TOP = Path(__file__).resolve().parent.parent
RECIPE = TOP / "lab/images/node"
SIZE = "16G"
# Not in a node: documents, translations and udev's hardware names.
EXCLUDED = [
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/lib/udev/hwdb.d/*",
]
FOLDERS = [
    "host",
    "opt/src",
    "etc/virtman",
    "etc/rtslib-fb-target/pr",
    "etc/target",
    "var/target/pr",
]


def cache_folder() -> Path:
    """Return the folder of built images, as tools/setup.sh names it."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("VIRTMAN_CACHE") or Path(home) / "virtman")


def recipe_key(files: dict[str, bytes]) -> str:
    """Return the name that a recipe's contents give to what is built from it."""
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def recipe_files(recipes: Sequence[Path], modules: Path) -> dict[str, bytes]:
    """Return everything the image's contents depend on, by name."""
    paths = [
        path
        for recipe in recipes
        for path in recipe.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    files = {str(path.relative_to(TOP)): path.read_bytes() for path in paths}
    files["requirements.txt"] = (TOP / "requirements.txt").read_bytes()
    files["rootfs.py"] = Path(__file__).read_bytes()
    files["kernel"] = modules.name.encode()
    return files


def packages(text: str) -> list[str]:
    """Return the package names of a list with comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def ensure_image(modules: Path, addition: Path | None = None) -> Path:
    """Return the root image of the nodes, building it if it is not there yet.

    ``modules`` is the folder of their kernel's, called as its version; ``addition`` that of a
    recipe for nodes that have more: packages and an overlay.
    """
    recipes = [RECIPE] if addition is None else [RECIPE, addition]
    folder = cache_folder() / f"node-{recipe_key(recipe_files(recipes, modules))}"
    image = folder / "root.img"
    if image.exists():
        return image
    with building():
        if not image.exists():
            LOG.info("building the nodes' root file system, %s", folder.name)
            _build(folder, recipes, modules)
    return image


@contextmanager
def building() -> Iterator[None]:
    """Let one process build at a time."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / "node.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folder: Path, recipes: Sequence[Path], modules: Path) -> None:
    temp = Path(tempfile.mkdtemp(prefix="node-build-", dir=cache_folder()))
    root = temp / "root"
    try:
        _install_packages(root, recipes)
        _install_libraries(root)
        _install_modules(root, modules)
        _install_recipe(root, recipes)
        result = temp / "result"
        result.mkdir()
        _make_file_system(root, result / "root.img")
        result.rename(folder)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def run_step(*argv: str | Path) -> None:
    """Run a build step; its output is shown only when it fails."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise BuildFailed(f"{argv[0]} ended with status {done.returncode}:\n{tail}")


def _install_packages(root: Path, recipes: Sequence[Path]) -> None:
    names = [name for one in recipes for name in packages((one / "packages.txt").read_text())]
    run_step(
        "mmdebstrap",
        "--variant=essential",
        "--mode=root",
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in EXCLUDED),
        *(f"--setup-hook={hook}" for one in recipes if (hook := one / "suites").exists()),
        f"--include={','.join(names)}",
        "bookworm",
        root,
    )


def _install_libraries(root: Path) -> None:
    """Install the product's requirements with this Python, whose ABI is the node's."""
    if sys.version_info[:2] != (3, 11):
        raise BuildFailed("build the nodes' image with Python 3.11, the one that they have")
    run_step(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"),
        *("--disable-pip-version-check", "--root-user-action=ignore"),
        *("--target", root / "opt/virtman", "-r", TOP / "requirements.txt"),
    )


def _install_modules(root: Path, modules: Path) -> None:
    shutil.copytree(modules, root / "usr/lib/modules" / modules.name)
    run_step("depmod", "--basedir", root, modules.name)


def _install_recipe(root: Path, recipes: Sequence[Path]) -> None:
    """Add the recipes' own files, folders and accounts; compile what is Python."""
    for recipe in recipes:
        shutil.copytree(recipe / "overlay", root, dirs_exist_ok=True, symlinks=True)
    sbin = root / "usr/local/sbin"
    shutil.copy2(RECIPE / "init", sbin / "init")
    shutil.copy2(RECIPE / "execd.py", sbin / "execd.py")
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for recipe in recipes:
        for name in packages((recipe / "accounts.txt").read_text()):
            _add_account(root, name)
    compileall.compile_dir(
        root / "opt/virtman",
        quiet=2,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=compileall.py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _add_account(root: Path, name: str) -> None:
    run_step(
        *("useradd", "--root", root, "--system", "--user-group", "--create-home"),
        *("--home-dir", f"/var/lib/{name}", "--shell", "/usr/sbin/nologin", name),
    )


def _make_file_system(root: Path, image: Path) -> None:
    """Make a sparse ext4 image of a tree.

    The inode tables are few and written now, or every node's kernel would write
    them into its copy-on-write file in the background.
    """
    run_step(
        *("mke2fs", "-q", "-t", "ext4", "-L", "node", "-m", "0", "-N", "131072", "-J", "size=16"),
        *("-E", "lazy_itable_init=0,lazy_journal_init=0", "-d", root, image, SIZE),
    )
