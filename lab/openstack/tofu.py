"""OpenTofu on a bed, with its provider of OpenStack; Go builds both from the module proxy."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from lab import processes
from lab.errors import BuildFailed
from lab.openstack.bed import USER, OpenStack
from lab.openstack.environment import only_one, run
from lab.rootfs import cache_folder, recipe_key

# Of each program: its module, and the package in it.
PROGRAMS = {
    "tofu": ("github.com/opentofu/opentofu@v1.12.6", "./cmd/tofu"),
    "terraform-provider-openstack": (
        "github.com/terraform-provider-openstack/terraform-provider-openstack/v3@v3.4.0",
        ".",
    ),
}
SOURCE = "terraform-provider-openstack/openstack"


def programs() -> Path:
    """Return the folder of the programs, which are built once: that takes long."""
    folder = cache_folder() / f"openstack-tofu-{recipe_key({'programs': repr(PROGRAMS).encode()})}"
    with only_one("tofu"):
        if not folder.exists():
            part = folder.with_suffix(".part")
            for name, (module, package) in PROGRAMS.items():
                _build(part / name, module, package)
            part.rename(folder)
    return folder


def _build(program: Path, module: str, package: str) -> None:
    """Build a program where its module is, so that its own go.mod and go.sum count."""
    go = shutil.which("go")
    if not go:
        raise BuildFailed(f"{program.name} needs Go, 1.21 or newer")
    download = [go, "mod", "download", "-json", module]
    said = subprocess.run(download, cwd="/", capture_output=True, text=True, check=False).stdout
    found = json.loads(said or "{}")
    if "Dir" not in found:
        raise BuildFailed(f"{module} cannot be had: {found.get('Error')}")
    flags = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w"]
    run("env", "CGO_ENABLED=0", go, "build", "-C", found["Dir"], *flags, "-o", program, package)


class Tofu:
    """What one configuration, the files of a folder, has made on a bed that is up."""

    def __init__(self, cloud: OpenStack, configuration: Path, **values: object) -> None:
        self.cloud = cloud
        self.programs = programs()
        self.values = [f"-var={name}={value}" for name, value in values.items()]
        self.folder = cloud.settings.state / "tofu"
        shutil.copytree(configuration, self.folder, dirs_exist_ok=True)
        self._settings.write_text(
            f'provider_installation {{ dev_overrides {{ "{SOURCE}" = "{self.programs}" }} }}\n'
        )

    def apply(self) -> None:
        """Make what is missing, and return once it is there; raises CommandFailed."""
        self._run("apply", "-auto-approve", *self.values)

    def destroy(self) -> None:
        """Remove all of it; raises CommandFailed."""
        self._run("destroy", "-auto-approve", *self.values)

    def plan(self) -> str:
        """Return what would be done now to make the cloud what the configuration says."""
        return self._run("plan", *self.values)

    def output(self, name: str) -> Any:
        """Return an output of the configuration."""
        return json.loads(self._run("output", "-json", name))

    def _run(self, verb: str, *options: str) -> str:
        command = [*processes.MORTAL, str(self.programs / "tofu"), verb, *options]
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "TF_CLI_ARGS": "-no-color",
            "TF_CLI_CONFIG_FILE": str(self._settings),
            "TF_INPUT": "false",
        }
        in_folder = ["env", "-C", str(self.folder), *command]
        return self.cloud.bed.run_in(in_folder, timeout=600, env=variables | USER).stdout

    @property
    def _settings(self) -> Path:
        return self.folder / "tofu.rc"
