"""The document at /v1/openapi.json describes the API that is served."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from openapi_spec_validator import validate

from tests.functional.volt import crowd
from tests.functional.volt.base import TestCase
from volt.api.routes import ROUTES

HERE = Path(__file__).parent
SECONDS = 30  # for schemathesis; it stops by itself then


class TestDocument(TestCase):
    def setUp(self):
        super().setUp()
        self.document = self.ground.client().get("/v1/openapi.json").json

    def test_it_is_valid(self):
        validate(self.document)

    def test_it_has_the_routes_that_are_served_and_no_others(self):
        described = {
            (method.upper(), path)
            for path, methods in self.document["paths"].items()
            for method in methods
        }
        served = {(route.method, re.sub(r"<(\w+)>", r"{\1}", route.path)) for route in ROUTES}
        assert described == served

    def test_every_operation_has_a_name_of_its_own(self):
        names = [
            operation["operationId"]
            for methods in self.document["paths"].values()
            for operation in methods.values()
        ]
        assert len(names) == len(set(names))


class TestServed(TestCase):
    """A running Volt answers as its document says, whatever is asked."""

    def test_schemathesis_finds_no_fault(self):
        crowd.populate(self.ground, 12)
        with ExitStack() as cleanups:
            volt, url = crowd.serve(self.ground, cleanups)
            found = subprocess.run(
                [
                    *(sys.executable, "-m", "schemathesis.cli"),
                    *("--config-file", HERE / "schemathesis.toml", "run"),
                    *(f"{url}/v1/openapi.json", "--url", url),
                    *("--header", f"Authorization: Bearer {self.ground.operator}"),
                    *("--max-time", str(SECONDS)),
                ],
                cwd=self.ground.folder,
                env=os.environ
                | {
                    "SCHEMATHESIS_FOLDER": str(HERE),
                    "SOURCE_PORT": str(self.ground.source_port),
                },
                capture_output=True,
                text=True,
                check=False,
            )
            assert found.returncode == 0, found.stdout + found.stderr
            assert "Traceback" not in volt.log.read_text(), volt.log.read_text()
