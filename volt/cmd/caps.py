"""How volt-manage lists the caps of what is fetched ahead, sets and clears them."""

import json
import re
from collections.abc import Callable
from typing import Final

import click
from oslo_config import cfg

from volt.api import json_format
from volt.cmd import reported
from volt.cmd.table import table
from volt.db import upgrade
from volt.model.caps import CapKind
from volt.model.names import check_name, check_rack
from volt.registry.caps import Caps
from volt.transport import LARGEST

_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_RATE: Final = re.compile(rf"([0-9]{{1,18}}(?:\.[0-9]{{1,9}})?)({'|'.join(_UNITS)})")


def _rate(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Return the bytes a second that somebody wrote."""
    found = _RATE.fullmatch(value)
    rate = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if not 1 <= rate <= LARGEST:
        raise click.BadParameter(
            f"{value[:64]!r} is no rate: give bytes a second, or KiB, MiB or GiB, such as "
            "41943040, 40MiB or 2.5MiB; 'volt-manage cap clear' removes a cap"
        )
    return rate


@click.group()
def cap() -> None:
    """Caps of what hosts fetch ahead of VMs."""


def _capped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command name an image, a rack or a host."""
    command = click.option("--host", help="Host that it holds for, in all images.")(command)
    command = click.option("--rack", help="Rack whose hosts it holds for, in all images.")(command)
    return click.option("--image", help="Image that it holds for, on all hosts.")(command)


@cap.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the REST API.")
@click.pass_obj
def index(options: cfg.ConfigOpts, as_json: bool) -> None:
    """List all caps, in bytes a second.

    TAKERS is how many fetch ahead now, GRANTED what these may fetch in all.
    """
    with reported():
        found = _caps(options).index()
    if as_json:
        click.echo(json.dumps({"caps": found}, indent=2, default=json_format.plain))
        return
    rows = [(one.kind.value, one.name, one.rate, one.takers, one.granted) for one in found]
    table(("KIND", "NAME", "RATE", "TAKERS", "GRANTED"), rows)


@cap.command("set")
@_capped
@click.argument("rate", callback=_rate)
@click.pass_obj
def put(
    options: cfg.ConfigOpts, image: str | None, rack: str | None, host: str | None, rate: int
) -> None:
    """Let no more than RATE be fetched ahead.

    RATE is in bytes a second, or such as 40MiB or 2.5MiB.
    """
    with reported():
        kind, name = _named(image, rack, host)
        _caps(options).put(kind, name, rate)
    click.echo(f"cap of {kind} {name}: {rate} bytes/s")


@cap.command()
@_capped
@click.pass_obj
def clear(options: cfg.ConfigOpts, image: str | None, rack: str | None, host: str | None) -> None:
    """Remove a cap."""
    with reported():
        kind, name = _named(image, rack, host)
        was_there = _caps(options).clear(kind, name)
    click.echo(f"cap of {kind} {name} {'removed' if was_there else 'was not there'}")


def _named(image: str | None, rack: str | None, host: str | None) -> tuple[CapKind, str]:
    """Return of what the cap is; raises NameInvalid."""
    match image, rack, host:
        case str(), None, None:
            return CapKind.IMAGE, check_name("image", image)
        case None, str(), None:
            return CapKind.RACK, check_rack(rack)
        case None, None, str():
            return CapKind.HOST, check_name("host", host)
    raise click.UsageError("give --image, --rack or --host, one of them")


def _caps(options: cfg.ConfigOpts) -> Caps:
    return Caps(upgrade.opened(options.database.connection, options.database.busy_timeout))
