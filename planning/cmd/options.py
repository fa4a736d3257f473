"""Options that several commands share: what figures mean, and which files are written."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import click

from planning import origin
from planning.errors import PlanningError
from planning.origin import Origin

SETTINGS = {"help_option_names": ["-h", "--help"]}
_CHECKOUT = "(not installed: run from a source tree)"
_PICTURES = (".svg", ".png")
_DECIMAL = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}

T = TypeVar("T")


def rate(text: str) -> float:
    """Return the bytes a second that are meant: bits in the text, as switches are sold."""
    return _figure(text, r"([KMGT]?)(?:bit)?", _DECIMAL, "no rate: write it like 25M or 10G") / 8


def size(text: str) -> float:
    """Return the bytes that are meant."""
    return _figure(text, r"([KMGT]?)(?:iB)?", _BINARY, "no size: write it like 64K or 2GiB")


def seconds(text: str) -> float:
    """Return the seconds that are meant."""
    return _figure(text, r"(us|ms|s|)", _TIMES, "no time: write it like 20 or 0.5ms")


def hosts(text: str) -> int:
    """Return a number of hosts."""
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise click.BadParameter(f"{text!r} is no number of hosts from 1 to 999999")
    return int(text)


def number(text: str) -> float:
    """Return a number that is not negative."""
    if not re.fullmatch(r"\d{1,6}(\.\d{1,9})?", text):
        raise click.BadParameter(f"{text!r} is no number: write it like 2 or 0.25")
    return float(text)


def several(convert: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return what reads values with commas between them, each once."""

    def read(text: str) -> tuple[T, ...]:
        found = tuple(map(convert, text.split(",")))
        if len(set(found)) != len(found):
            raise click.BadParameter(f"{text!r} has something twice")
        return found

    return read


def check_known(what: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse what is not known.

    :param what: the option's name, less its dashes
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise click.BadParameter(f"no such {what}: {', '.join(unknown)}", param_hint=f"--{what}")


def _figure(text: str, unit: str, factors: Mapping[str, float], otherwise: str) -> float:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)" + unit, text)
    if not match:
        raise click.BadParameter(f"{text!r} is {otherwise}")
    return float(match[1]) * factors[match[2]]


def _picture(context: click.Context, parameter: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and file.suffix not in _PICTURES:
        raise click.BadParameter(f"{str(file)!r} must end with {' or '.join(_PICTURES)}")
    return file


_file = click.Path(path_type=Path, dir_okay=False)
json_file = click.option("--json", "json_file", type=_file, help="Also write JSON to this file.")
csv_file = click.option("--csv", "csv_file", type=_file, help="Also write a table to this file.")
plot_file = click.option(
    "--plot", "plot_file", type=_file, callback=_picture,
    help="Also draw it, as SVG or PNG by the file's suffix.",
)  # fmt: skip


def version_option(program: str) -> Callable[[Any], Any]:
    """Return the option ``--version`` of a program."""

    def show(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            try:
                version = metadata.version("virtman")
            except metadata.PackageNotFoundError:
                version = _CHECKOUT
            click.echo(f"{program} {version}")
            context.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version.",
    )


@contextmanager
def reported() -> Iterator[None]:
    """Turn what is refused, and files that cannot be written, into a message and exit status 1."""
    try:
        yield
    except (PlanningError, OSError) as err:
        raise click.ClickException(str(err)) from err


def write_json(file: Path | None, what: str, found: Mapping[str, Any]) -> None:
    """Write JSON, and where it is from, if a file is given.

    :param what: was found; for the page of all results
    """
    if file is not None:
        context = click.get_current_context()
        program = context.find_root().info_name or what
        about = asdict(context.find_object(Origin) or origin.here(program))
        about = {name: value for name, value in about.items() if value is not None}
        file.write_text(json.dumps({"bench": what, **about, **found}, indent=2) + "\n")


def write_csv(file: Path | None, titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table with its titles if a file is given."""
    if file is not None:
        with file.open("w", newline="") as stream:
            csv.writer(stream).writerows([titles, *rows])


# Of commands that are about a site.
of_hosts = click.option(
    "--hosts", type=hosts, metavar="N", required=True, help="That boot at once."
)
of_racks = click.option(
    "--racks",
    type=hosts,
    metavar="N",
    default="1",
    show_default=True,
    help="Over which hosts are spread.",
)
of_links = click.option(
    "--link-rate",
    type=rate,
    metavar="RATE",
    required=True,
    help="Of each host's link, each way.",
)
of_source = click.option(
    "--source-rate",
    type=rate,
    metavar="RATE",
    help="Of the source's link.  [default: as a host's]",
)
