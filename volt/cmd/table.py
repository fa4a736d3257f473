"""How volt-manage lays out lists: tables that fit the terminal.

What is written to a file or pipe is complete: nothing is shortened there.
"""

import shutil
import sys
from collections.abc import Sequence

import click

_GAP = "  "
_LEAST = 8


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below titles; numbers to the right; on a terminal long names lose their middle."""
    lines = [titles, *([str(cell) for cell in row] for row in rows)]
    right = [isinstance(cell, int) for cell in rows[0]] if rows else [False] * len(titles)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        fit(widths, shutil.get_terminal_size().columns - len(_GAP) * (len(widths) - 1))
    for line in lines:
        cells = (_cell(*each) for each in zip(line, widths, right, strict=True))
        click.echo(_GAP.join(cells).rstrip())


def fit(widths: list[int], room: int) -> None:
    """Make the widest columns narrower until all fit, or none is wider than 8."""
    while sum(widths) > room and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1


def _cell(text: str, width: int, right: bool) -> str:
    if len(text) > width:
        tail = (width - 1) // 2
        return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"
    return text.rjust(width) if right else text.ljust(width)
