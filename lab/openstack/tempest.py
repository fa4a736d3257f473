"""Tempest on a bed: OpenStack's own tests of clouds, as far as they need no network.

Which tests these are is in tempest_included.txt and tempest_excluded.txt. Those that
tempest_running.txt matches have the guest of the lab, and all others one that only halts.
"""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from subunit import ByteStreamToStreamResult
from testtools import StreamToDict

from lab.errors import LabError
from lab.network import ADDRESS
from lab.openstack import environment, idle_guest
from lab.openstack.bed import OpenStack
from lab.openstack.nodes import GUEST_DISK
from lab.openstack.servers import Servers
from lab.openstack.settings import PASSWORD, REGION
from lab.waiting import wait_until
from virtman import atomic_file

LISTS = Path(__file__).parent
NETWORKING = f"http://{ADDRESS}:9696"
CONFIG = "tempest.conf"
# Guests; the second is that of the lab.
IDLE, RUNNING = "idle", "running"
# Tests that run together, but for the rest of a class; what became of them is known at the end.
TOGETHER = 20
DEADLINE = 2 * 3600.0  # seconds for them
# Seconds that a server has to stop by itself: no guest has come so far that it listens, or it never
# will.
PATIENCE = 2
ENDED = ("success", "fail", "skip")


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

    def knows(self, test: str) -> bool:
        """Tell whether it has ended: a class that does not fit is skipped as one."""
        name = _name(test)
        return not {name, f"setUpClass ({_class(name)})"}.isdisjoint(self.having(*ENDED))

    def __or__(self, later: "Outcomes") -> "Outcomes":
        """Add those of a later run."""
        return Outcomes({**self.statuses, **later.statuses})

    def __str__(self) -> str:
        """Count."""
        counts = len(self.passed), len(self.failed), len(self.skipped)
        return "{} passed, {} failed, {} skipped".format(*counts)


def read(stream: bytes) -> Outcomes:
    """Read what stestr tells of a run, in subunit's second version."""
    statuses: dict[str, str] = {}

    def note(test: Mapping[str, str]) -> None:
        if test["status"] != "exists":
            statuses[_name(test["id"])] = test["status"]

    result = StreamToDict(note)
    result.startTestRun()
    ByteStreamToStreamResult(BytesIO(stream), non_subunit_name="output").run(result)
    result.stopTestRun()
    return Outcomes(statuses)


class Known:
    """What became of tests with each Nova; kept in a file, if there is one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._outcomes: dict[str, Mapping[str, str]] = {}
        if file is not None and file.exists():
            try:
                self._outcomes = json.loads(file.read_text())
            except ValueError as err:
                raise LabError(f"{file} is not what this command keeps: {err}") from err

    def of(self, nova: str) -> Outcomes:
        """Return what is known with a Nova."""
        return Outcomes(self._outcomes.get(nova, {}))

    def add(self, nova: str, outcomes: Outcomes) -> None:
        """Learn what became of further tests."""
        self._outcomes[nova] = (self.of(nova) | outcomes).statuses
        if self._file is not None:
            atomic_file.write(self._file, json.dumps(self._outcomes, indent=1).encode())


class Tempest:
    """Tempest on a bed that is up, with the Nova that it runs now."""

    def __init__(self, cloud: OpenStack) -> None:
        self.cloud = cloud

    @property
    def folder(self) -> Path:
        """Where its configuration, its output and its log are."""
        settings = self.cloud.settings
        return settings.folder / "tempest" / settings.nova

    def run(self, regex: str = "", known: Known | None = None) -> Outcomes:
        """Run all tests of the list, or those that match a regular expression instead.

        What they say is in the folder meanwhile: for each guest ``output``, and ``debug.log``.

        :param known: what ended before, which is not run again; it learns what ends
        """
        nova = self.cloud.settings.nova
        known = known or Known()
        shutil.rmtree(self.folder, ignore_errors=True)
        some_match = False
        with self._content() as (content, images):
            for guest, (image, other) in images.items():
                run = _Run(self.cloud, self.folder / guest)
                run.configure(image=image, other_image=other, **content)
                tests = [test for test in run.tests(regex) if _is_of(test, guest)]
                some_match = some_match or bool(tests)
                for some in together([one for one in tests if not known.of(nova).knows(one)]):
                    known.add(nova, run.run(some))
        if not some_match:
            raise LabError(f"no test of tempest's matches {regex}")
        return known.of(nova)

    @contextmanager
    def _content(self) -> Iterator[tuple[dict[str, object], dict[str, tuple[str, str]]]]:
        """Make what the configuration names; all of it goes again, so that others count right.

        :returns: what is the same for all guests, and two images of each
        """
        cloud, servers = self.cloud, Servers(self.cloud)
        with ExitStack() as given_back:

            def make(kind: str, *words: str) -> str:
                made = str(cloud.client(*kind.split(), "create", *words)["id"])
                given_back.callback(cloud.order, *kind.split(), "delete", made)
                return made

            def image(name: str, disk: str) -> str:
                options = ["--public", "--property", f"os_shutdown_timeout={PATIENCE}"]
                made = servers.guest_as_image(name, *options, disk=disk)
                given_back.callback(cloud.order, "image", "delete", made)
                return made

            def images(name: str, disk: str) -> tuple[str, str]:
                return image(f"tempest-{name}", disk), image(f"tempest-{name}-other", disk)

            # Horizon must not see it: there, a server that is launched would need a network.
            networking = make("service", "--name", "neutron", "network")
            make("endpoint", "--region", REGION, networking, "public", NETWORKING)
            idle_guest.write(cloud.nodes.storage.share / IDLE)
            content = {
                "password": PASSWORD,
                "computes": len(cloud.nodes.computes),
                "flavor": make("flavor", *_size(96, 1), "tempest"),
                "other_flavor": make("flavor", *_size(128, 2), "tempest-larger"),
            }
            yield (
                content,
                {IDLE: images(IDLE, f"/host/{IDLE}"), RUNNING: images(RUNNING, GUEST_DISK)},
            )


class _Run:
    """One run of some tests, in a folder of its own."""

    def __init__(self, cloud: OpenStack, folder: Path) -> None:
        self._cloud = cloud
        self._folder = folder
        self._program = environment.tempest()
        self._variables = self._program.variables() | {"HOME": str(folder)}

    def configure(self, **content: object) -> None:
        """Write tempest's configuration, and make what keeps the outcomes."""
        self._folder.mkdir(parents=True)
        self._stestr("init")
        config = self._folder / CONFIG
        self._cloud.settings.write(config.name, config, folder=self._folder, **content)

    def tests(self, regex: str) -> list[str]:
        """Return the tests of the list, or those that match a regular expression instead."""
        which = ["--regex", regex] if regex else ["--include-list", _listed("included")]
        words = self._words("--list-tests", *which, "--exclude-list", _listed("excluded"))
        lines = self._ask(*words).decode().splitlines()
        return [line for line in lines if line.startswith("tempest.")]

    def run(self, tests: Sequence[str]) -> Outcomes:
        """Run them one after the other."""
        listed = self._folder / "tests"
        listed.write_text("\n".join(tests))
        words = self._words("--concurrency", "1", "--load-list", str(listed))
        output = self._folder / "output"
        bed = self._cloud.bed
        process = bed.spawn(words, output, self._variables, self._folder, "tempest")
        try:
            wait_until(lambda: not process.alive(), "the end of tempest", DEADLINE, 1)
        finally:
            process.end()
        found = read(self._stestr("last", "--subunit"))
        if not found.statuses:
            raise LabError(f"tempest ran no test: {output.read_text(errors='replace')[-3000:]}")
        return found

    def _words(self, *options: str) -> list[str]:
        tempest = str(self._program.program("tempest"))
        return [tempest, "run", "--config-file", str(self._folder / CONFIG), *options]

    def _stestr(self, *words: str) -> bytes:
        return self._ask(str(self._program.program("stestr")), *words)

    def _ask(self, *words: str) -> bytes:
        # the last outcomes are told with an error if a test failed
        done = subprocess.run(
            words, stdout=subprocess.PIPE, cwd=self._folder, env=self._variables, check=False
        )
        return done.stdout


def together(tests: Sequence[str]) -> Iterator[list[str]]:
    """Divide tests into those that run together: classes stay whole."""
    some: list[str] = []
    for _, of_class in itertools.groupby(sorted(tests), lambda test: _class(_name(test))):
        some += of_class
        if len(some) >= TOGETHER:
            yield some
            some = []
    if some:
        yield some


def _name(test: str) -> str:
    return test.partition("[")[0]


def _class(name: str) -> str:
    return name.rpartition(".")[0]


def _is_of(test: str, guest: str) -> bool:
    """Tell whether a test's servers have that guest."""
    lines = Path(_listed(RUNNING)).read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]
    needs = any(re.search(one, test) for one in wanted)
    return needs == (guest == RUNNING)


def _size(memory: int, disk: int) -> list[str]:
    """Return the options that say how large servers are, in MiB and GiB."""
    return ["--ram", str(memory), "--disk", str(disk), "--vcpus", "1"]


def _listed(what: str) -> str:
    return str(LISTS / f"tempest_{what}.txt")
