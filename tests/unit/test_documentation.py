"""The reference pages name everything that users can meet."""

import re
from pathlib import Path

import click
import testtools

from planning.cmd.model import main as model
from planning.cmd.simulate import main as simulate
from tests.commands import commands
from virtman import errors as agent_errors
from virtman.api import local
from virtman.cmd.golden import main as golden
from virtman.cmd.images import main as images
from virtman.cmd.shell import shell
from volt import errors as volt_errors
from volt.api import app, routes
from volt.cmd.manage import main as manage

TOP = Path(__file__).resolve().parents[2]
DOC = TOP / "doc" / "source"
PROGRAMS = {
    "virtman": shell,
    "volt-manage": manage,
    "virtman-golden": golden,
    "virtman-images": images,
    "virtman-model": model,
    "virtman-simulate": simulate,
}
# As text names a command: in quotes, or at a prompt.
COMMAND = re.compile(
    r"(?:``|'|[#$] )(virtman|virtman-model|virtman-simulate|volt-manage)((?: [a-z]+(?:-[a-z]+)*)+)"
)


def codes_of(module):
    return {kind.code for kind in vars(module).values() if hasattr(kind, "code")}


TEXTS = {".py", ".sh", ".html", ".js", ".yaml", ".patch"}


class DocumentationTest(testtools.TestCase):
    def test_every_error_code_says_what_to_do(self):
        page = (DOC / "operator" / "errors.rst").read_text()
        codes = codes_of(agent_errors) | codes_of(volt_errors) | set(app.HTTP_CODES.values())
        self.assertEqual([], sorted(code for code in codes if f"``{code}`` (" not in page))

    def test_every_route_of_the_agent_is_described(self):
        self.assert_described("agent-api.rst", local.ROUTES)

    def test_every_route_of_volt_is_described(self):
        self.assert_described("rest-api.rst", [(one.method, one.path) for one in routes.ROUTES])

    def test_every_command_and_option_is_described(self):
        page = (DOC / "operator" / "commands.rst").read_text()
        named = set(re.findall(r"--[a-z][a-z-]*", page))
        for program, command in PROGRAMS.items():
            for words, below in commands(command, program):
                options = {name for one in below.params for name in one.opts if name[:2] == "--"}
                self.assertEqual(set(), options - named, words)
                if not isinstance(below, click.Group):
                    self.assertIn(f"``{' '.join(words)}", page)

    def test_every_command_that_is_named_exists(self):
        files = [TOP / "README.rst", *(TOP / "etc").rglob("*.conf"), *DOC.rglob("*.rst")]
        for folder in ("virtman", "volt", "planning", "lab", "releasenotes", "nova_patches"):
            files += [file for file in (TOP / folder).rglob("*.*") if file.suffix in TEXTS]
        wrong = []
        for file in files:
            for found in COMMAND.finditer(file.read_text()):
                program, *words = (found[1] + found[2]).split()
                if not exists(PROGRAMS[program], words):
                    wrong.append((file.name, found[0]))
        self.assertEqual([], wrong)

    def assert_described(self, page, declared):
        lines = (DOC / "reference" / page).read_text().splitlines()
        titles = {f"{verb} {_plain(path)}" for verb, path, *_ in declared}
        self.assertEqual([], sorted(titles.difference(lines)))


def exists(command, words):
    """Whether words lead to a command; those after it may be arguments."""
    for word in words:
        if not isinstance(command, click.Group):
            return True
        command = command.get_command(None, word)
        if command is None:
            return False
    return True


def _plain(path):
    """Return a route's path with its variables in the form of the documentation."""
    return path.replace("<", "{").replace(">", "}")
