"""The reference pages name everything that users can meet."""

from pathlib import Path

import testtools

from virtman import errors as agent_errors
from virtman.api import local
from volt import errors as volt_errors
from volt.api import app, routes

DOC = Path(__file__).resolve().parents[2] / "doc" / "source"


def codes_of(module):
    return {kind.code for kind in vars(module).values() if hasattr(kind, "code")}


class DocumentationTest(testtools.TestCase):
    def test_every_error_code_says_what_to_do(self):
        page = (DOC / "operator" / "errors.rst").read_text()
        codes = codes_of(agent_errors) | codes_of(volt_errors) | set(app.HTTP_CODES.values())
        self.assertEqual([], sorted(code for code in codes if f"``{code}`` (" not in page))

    def test_every_route_of_the_agent_is_described(self):
        self.assert_described("agent-api.rst", local.ROUTES)

    def test_every_route_of_volt_is_described(self):
        self.assert_described("rest-api.rst", [(one.method, one.path) for one in routes.ROUTES])

    def assert_described(self, page, declared):
        lines = (DOC / "reference" / page).read_text().splitlines()
        titles = {f"{verb} {_plain(path)}" for verb, path, *_ in declared}
        self.assertEqual([], sorted(titles.difference(lines)))


def _plain(path):
    """Return a route's path with its variables in the form of the documentation."""
    return path.replace("path:", "").replace("<", "{").replace(">", "}")
