"""What a bench says of how its figures were measured."""

import json
import subprocess
import tempfile
from pathlib import Path

import testtools

from bench import results


class ResultsTest(testtools.TestCase):
    def test_a_file_tells_commit_and_machine_but_not_which_one(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "x.json")
            results.of("churn", [{"hosts": 1}]).save(file)
            found, text = results.load(file), file.read_text()
        assert (found.bench, found.runs, found.ratios) == ("churn", [{"hosts": 1}], None)
        assert found.command.startswith("python -m bench")
        assert found.machine.processors >= 1
        assert found.machine.memory_bytes > 1 << 20
        assert found.machine.kernel
        told = json.loads(text)
        assert told.keys() <= {"bench", "command", "commit", "machine", "runs"}
        assert told["machine"].keys() == {"processor", "processors", "memory_bytes", "kernel"}
        assert str(results.TOP) not in text
        git = ("git", "rev-parse", "HEAD")
        head = subprocess.run(git, capture_output=True, text=True, check=False, cwd=results.TOP)
        if head.returncode == 0:
            assert found.commit is not None
            assert head.stdout.startswith(found.commit.removesuffix("+"))
        else:
            assert found.commit is None
