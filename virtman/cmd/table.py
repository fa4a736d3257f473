"""How answers are laid out for people: tables that fit the terminal, sizes, fields.

What is written to a file or pipe is complete: nothing is shortened or rounded there.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

_GAP = "  "
_LEAST = 8


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below titles; on a terminal, long cells lose their middle."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    if sys.stdout.isatty():
        fit(widths, shutil.get_terminal_size().columns - len(_GAP) * (len(widths) - 1))
    for row in (titles, *rows):
        cells = (shortened(cell, width) for cell, width in zip(row, widths, strict=True))
        click.echo(_GAP.join(cells).rstrip())


def fit(widths: list[int], room: int) -> None:
    """Make the widest columns narrower until all fit, or none is wider than 8."""
    while sum(widths) > room and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1


def shortened(cell: str, width: int) -> str:
    """Return a cell of just this width: names often differ in their ends, so the middle goes."""
    if len(cell) <= width:
        return cell.ljust(width)
    tail = (width - 1) // 2
    return f"{cell[: width - 1 - tail]}…{cell[len(cell) - tail :]}"


def size(number: int | None) -> str:
    """Return bytes for a table; "-" if they are not known."""
    if number is None:
        return "-"
    return rounded(number) if sys.stdout.isatty() else str(number)


def quota(number: int) -> str:
    """Return a quota for a table; "-" if there is none."""
    return size(number or None)


def rounded(number: int) -> str:
    """Return bytes with a letter, as ``--quota`` takes them: 1536 is "1.5K"."""
    power = min(4, (number.bit_length() - 1) // 10) if number else 0
    return f"{number / 1024**power:.1f}".removesuffix(".0") + ("", "K", "M", "G", "T")[power]


@contextlib.contextmanager
def status_line(*, as_json: bool) -> Iterator[Callable[[str], None]]:
    """Give what shows how far something is, on a line that changes; only to people."""
    shows = sys.stderr.isatty() and not as_json

    def show(text: str) -> None:
        if shows:
            click.echo(f"\r{text}\x1b[K", err=True, nl=False)

    try:
        yield show
    finally:
        if shows:
            click.echo(err=True)


def fields(found: Mapping[str, Any], names: Sequence[str]) -> None:
    """Print some of an answer's values, one a line."""
    for name in names:
        click.echo(f"{name}: {found[name]}")


def stores(found: Mapping[str, Any]) -> None:
    """Print the exception stores of a VM or snapshot."""
    for one in found["stores"]:
        merging = ", being merged into the one before" if one["merging"] else ""
        click.echo(f"store: {one['path']}, {one['allocated']} bytes{merging}")
