"""Tables on standard output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click


def show(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below titles: the first column to the left, figures to the right."""
    lines = [tuple(titles), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        click.echo("  ".join(cells).rstrip())
