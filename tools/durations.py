"""Tells stestr how long tests take before it has run any: then its workers end at about one time.

    python tools/durations.py load REPOSITORY FILE
    python tools/durations.py save REPOSITORY FILE

``load`` does nothing if the repository has seen a run. A test that FILE does not know is dealt
out all the same, so FILE may be old: save it anew after a run of all tests when the workers'
times, which are the last lines of a run, differ by minutes.
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stestr.repository.file import Repository, RepositoryFactory

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def load(repository: Repository, file: Path) -> None:
    """Record a run in which each test took so long."""
    if repository.count():
        return
    run = repository.get_inserter()
    run.startTestRun()
    for line in file.read_text().splitlines():
        seconds, test = line.split()
        run.status(test_id=test, test_status="inprogress", timestamp=_BEGIN)
        end = _BEGIN + timedelta(seconds=int(seconds))
        run.status(test_id=test, test_status="success", timestamp=end)
    run.stopTestRun()


def save(repository: Repository, file: Path) -> None:
    """Write down how long each test of the last run took, in seconds, if more than one."""
    tests = repository.get_test_ids(repository.latest_id())
    known = repository.get_test_times(tests)["known"]
    seconds = {test: round(known[test]) for test in sorted(known)}
    file.write_text("".join(f"{took} {test}\n" for test, took in seconds.items() if took > 1))


if __name__ == "__main__":
    _, verb, where, file = sys.argv
    {"load": load, "save": save}[verb](RepositoryFactory().open(where), Path(file))
