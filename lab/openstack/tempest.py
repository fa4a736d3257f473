"""Tempest on a bed: OpenStack's own tests of clouds, as far as they need no network.

Which tests these are is in tempest_included.txt and tempest_excluded.txt.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from subunit import ByteStreamToStreamResult
from testtools import StreamToDict

from lab.errors import LabError
from lab.network import ADDRESS
from lab.openstack import environment
from lab.openstack.bed import OpenStack
from lab.openstack.servers import Servers
from lab.openstack.settings import PASSWORD, REGION
from lab.waiting import wait_until

LISTS = Path(__file__).parent
NETWORKING = f"http://{ADDRESS}:9696"
DEADLINE = 4 * 3600.0  # seconds
# Seconds that a server has to stop by itself: most are stopped before their guest listens to that.
PATIENCE = 10


@dataclass(frozen=True)
class Outcomes:
    """What became of each test, by its name: "success", "fail", "skip" or "inprogress"."""

    statuses: Mapping[str, str]

    def having(self, *statuses: str) -> list[str]:
        """Return the tests that ended so."""
        return sorted(test for test, status in self.statuses.items() if status in statuses)

    @property
    def passed(self) -> list[str]:
        """The tests that passed."""
        return self.having("success")

    @property
    def skipped(self) -> list[str]:
        """The tests that say that they do not fit the cloud."""
        return self.having("skip")

    @property
    def failed(self) -> list[str]:
        """The tests that failed, or had not ended when the run did."""
        return sorted(set(self.statuses) - set(self.passed) - set(self.skipped))

    def lost(self, before: "Outcomes") -> list[str]:
        """Return the tests that passed before, and do not any more."""
        return sorted(set(before.passed) - set(self.passed))

    def __str__(self) -> str:
        """Count."""
        counts = len(self.passed), len(self.failed), len(self.skipped)
        return "{} passed, {} failed, {} skipped".format(*counts)


def read(stream: bytes) -> Outcomes:
    """Read what stestr tells of a run, in subunit's second version."""
    statuses: dict[str, str] = {}

    def note(test: Mapping[str, str]) -> None:
        if test["status"] != "exists":
            statuses[test["id"].partition("[")[0]] = test["status"]

    result = StreamToDict(note)
    result.startTestRun()
    ByteStreamToStreamResult(BytesIO(stream), non_subunit_name="output").run(result)
    result.stopTestRun()
    return Outcomes(statuses)


class Tempest:
    """Tempest on a bed that is up, with the Nova that it runs now."""

    def __init__(self, cloud: OpenStack) -> None:
        self.cloud = cloud

    @property
    def folder(self) -> Path:
        """Where its configuration, its output and its log are."""
        settings = self.cloud.settings
        return settings.folder / "tempest" / settings.nova

    def run(self, regex: str = "") -> Outcomes:
        """Run all tests of the list, or those that match a regular expression instead.

        What it says is in ``output`` in the folder meanwhile, and in the log ``debug.log``.
        """
        program = environment.tempest()
        home = {"HOME": str(self.folder)}
        shutil.rmtree(self.folder, ignore_errors=True)
        with self._content() as content:
            config = self.folder / "tempest.conf"
            self.cloud.settings.write(config.name, config, folder=self.folder, **content)
            which = ["--regex", regex] if regex else ["--include-list", _listed("included")]
            self._run_to_end(
                *(str(program.program("tempest")), "run", "--concurrency", "1"),
                *("--config-file", str(config), *which, "--exclude-list", _listed("excluded")),
                variables=program.variables() | home,
            )
        # It ends with an error if a test failed.
        told = subprocess.run(
            [program.program("stestr"), "last", "--subunit"],
            stdout=subprocess.PIPE,
            cwd=self.folder,
            env=program.variables() | home,
            check=False,
        )
        found = read(told.stdout)
        if not found.statuses:
            output = (self.folder / "output").read_text(errors="replace")
            raise LabError(f"tempest ran no test: {output[-3000:]}")
        return found

    def _run_to_end(self, *words: str, variables: Mapping[str, str]) -> None:
        bed = self.cloud.bed
        process = bed.spawn(words, self.folder / "output", variables, self.folder, "tempest")
        try:
            wait_until(lambda: not process.alive(), "the end of tempest", DEADLINE, 1)
        finally:
            process.end()

    @contextmanager
    def _content(self) -> Iterator[dict[str, object]]:
        """Make what the configuration names; all of it goes again, so that others count right."""
        cloud, servers = self.cloud, Servers(self.cloud)
        with ExitStack() as given_back:

            def make(kind: str, *words: str) -> str:
                made = str(cloud.client(*kind.split(), "create", *words)["id"])
                given_back.callback(cloud.order, *kind.split(), "delete", made)
                return made

            def image(name: str) -> str:
                options = ["--public", "--property", f"os_shutdown_timeout={PATIENCE}"]
                made = servers.guest_as_image(name, *options)
                given_back.callback(cloud.order, "image", "delete", made)
                return made

            # Horizon must not see it: there, a server that is launched would need a network.
            networking = make("service", "--name", "neutron", "network")
            make("endpoint", "--region", REGION, networking, "public", NETWORKING)
            yield {
                "password": PASSWORD,
                "computes": len(cloud.nodes.computes),
                "image": image("tempest"),
                "other_image": image("tempest-other"),
                "flavor": make("flavor", *_size(96, 1), "tempest"),
                "other_flavor": make("flavor", *_size(128, 2), "tempest-larger"),
            }


def _size(memory: int, disk: int) -> list[str]:
    """Return the options that say how large servers are, in MiB and GiB."""
    return ["--ram", str(memory), "--disk", str(disk), "--vcpus", "1"]


def _listed(what: str) -> str:
    return str(LISTS / f"tempest_{what}.txt")
