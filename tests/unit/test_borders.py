"""What knows iSCSI is in one place: nothing else may name what only iSCSI has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import testtools

_ROOT = Path(__file__).parents[2]
_WORDS = re.compile("(iqn|lun|chap|lio)s?[0-9]*|iscsi.*")
_PARTS = re.compile("[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_PRODUCTS = ("virtman", "volt")
_PLACES = (
    "virtman/model/address.py",
    "virtman/stack/transport/",
    "virtman/privileged/iscsi.py",
    "virtman/privileged/lio.py",
    "volt/transport/",
    "volt/db/migrations/versions/",  # what was done to databases stays as it was
)
# The REST API says what hosts prove in fields and by a path of this name.
_FIELDS = {"volt/model/placements.py": "chap"}
_API = re.compile("(/v1/images/[<{]image[}>])?/chap")


def _documentation(tree: ast.AST) -> set[ast.AST]:
    """Return docstrings, of variables too: strings that nobody uses."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _names(source: str) -> Iterator[tuple[int, str]]:
    """Return the line and text of all identifiers, keys and paths; sentences are for people."""
    tree = ast.parse(source)
    documentation = _documentation(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            is_text = isinstance(node.value, str) and node not in documentation
            if is_text and not re.search(r"\s", node.value):
                yield node.lineno, node.value
            continue
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            text = getattr(node, field, None)
            if isinstance(text, str):
                yield getattr(node, "lineno", 0), text


def _knowing(source: str, field: str = "") -> list[int]:
    """Return the lines that name what only iSCSI has; but for the REST API's words."""
    return sorted(
        {
            line
            for line, text in _names(source)
            if text != field
            and not _API.fullmatch(text)
            and any(_WORDS.fullmatch(part.lower()) for part in _PARTS.findall(text))
        }
    )


class BordersTest(testtools.TestCase):
    def test_only_the_transport_knows_iscsi(self):
        found = {}
        for file in (file for product in _PRODUCTS for file in (_ROOT / product).rglob("*.py")):
            path = str(file.relative_to(_ROOT))
            if path.startswith(_PLACES):
                continue
            if lines := _knowing(file.read_text(), _FIELDS.get(path, "")):
                found[path] = lines
        self.assertEqual({}, found, "lines that know iSCSI: see contributor/layout.rst")

    def test_what_the_border_lets_pass_and_what_not(self):
        for source in (
            "portal.iqn",
            "from virtman.privileged import iscsi",
            "def f(source_lun): pass",
            "class ChapSecret: pass",
            'form["chap"]',
            'Path("/sys/class/iscsi_session")',
            "f(iqn=1)",
        ):
            self.assertEqual([1], _knowing(source), source)
        for source in (
            '"""The LUN of an iSCSI target."""',
            'help = "TCP port of the iSCSI portal."',
            "# CHAP",
            'f"{_IMAGE}/chap", "/v1/images/<image>/chap", "/v1/images/{image}/chap"',
            "portal.ip, chapter, plunge, helio, columns",
        ):
            self.assertEqual([], _knowing(source), source)
