"""What a bench says of how its figures were measured."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import testtools

from bench import results
from planning import origin


class ResultsTest(testtools.TestCase):
    def test_a_file_tells_commit_and_machine_but_not_which_one(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "x.json")
            results.of("churn", [{"hosts": 1}]).save(file)
            found, text = results.load(file), file.read_text()
        assert (found.bench, found.runs, found.ratios) == ("churn", [{"hosts": 1}], None)
        about = found.origin
        assert about.command.startswith("python -m bench")
        assert about.machine.processors >= 1
        assert about.machine.memory_bytes > 1 << 20
        assert about.machine.kernel
        told = json.loads(text)
        assert told.keys() <= {"bench", "command", "commit", "machine", "runs"}
        assert told["machine"].keys() == {"processor", "processors", "memory_bytes", "kernel"}
        assert str(origin.TOP) not in text
        git = ("git", "rev-parse", "HEAD")
        head = subprocess.run(git, capture_output=True, text=True, check=False, cwd=origin.TOP)
        if head.returncode == 0:
            assert about.commit is not None
            assert head.stdout.startswith(about.commit.removesuffix("+"))
        else:
            assert about.commit is None

    def test_so_does_a_file_of_the_model(self):
        words = ("times", "--hosts", "2", "--designs", "cs_demand")
        for program in ("planning.cmd.model", "bench model"):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "x.json")
                command = [sys.executable, "-m", *program.split(), *words, "--json", file]
                subprocess.run(command, check=True, capture_output=True, cwd=origin.TOP)
                found = results.load(file)
            assert found.origin.command == f"python -m {program} {' '.join(words)}"
            assert found.origin.machine.processors >= 1
            assert found.runs[0]["times"][0]["hosts"] == 2
