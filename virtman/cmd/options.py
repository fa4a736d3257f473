"""Options and arguments that several nouns share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from virtman.cmd.version import version

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def size(text: str) -> int:
    """Return the bytes that an option or argument means."""
    match = re.fullmatch(r"([0-9]{1,12})([KMGT]?)", text)
    if not match:
        raise click.BadParameter(f"{text!r} is not a size: use bytes, or a number and K, M, G or T")
    factor: int = 1024 ** " KMGT".index(match[2] or " ")
    return int(match[1]) * factor


def duration(text: str) -> int:
    """Return the seconds that an option means."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text)
    if not match:
        raise click.BadParameter(
            f"{text!r} is not a duration: use seconds, or a number and s, m, h or d"
        )
    return int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def version_option(program: str) -> Callable[[Any], Any]:
    """Return the option ``--version`` of a program."""

    def show(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            click.echo(f"{program} {version()}")
            context.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version.",
    )
