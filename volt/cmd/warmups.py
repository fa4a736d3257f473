"""How volt-manage has hosts warm an image before VMs boot from it, and shows how far they are."""

import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

import click
from oslo_config import cfg

from volt.api import json_format
from volt.cmd import reported
from volt.cmd.table import table
from volt.db import upgrade
from volt.model.names import check_name
from volt.model.profiles import BOOT
from volt.model.warmups import Chosen, Warming, Warmup
from volt.registry.batches import Turns
from volt.registry.warmups import Warmups

_LOOK = 1.0
"""Seconds between two looks at what hosts say."""

_MIB = 2**20

_json = click.option("--json", "as_json", is_flag=True, help="Print the answer of the REST API.")


@click.command()
@click.argument("image")
@click.option("--hosts", metavar="HOST[,HOST...]", help="Have these hosts warm IMAGE.")
@click.option("--rack", help="Have the hosts of this rack warm IMAGE.")
@click.option("--all", "everybody", is_flag=True, help="Have all hosts warm IMAGE.")
@click.option(
    "--workload", default=BOOT, show_default=True, help="Workload whose profile says what to fetch."
)
@click.option("--wait", is_flag=True, help="Return when all of them are warm, or failed.")
@_json
@click.pass_obj
def warm(
    options: cfg.ConfigOpts,
    *,
    image: str,
    hosts: str | None,
    rack: str | None,
    everybody: bool,
    workload: str,
    wait: bool,
    as_json: bool,
) -> None:
    """Have hosts attach IMAGE, and fetch what its profile says.

    VMs that boot from IMAGE then find it at hand. A host without VMs keeps IMAGE for its keep time.
    Hosts go on if this command is interrupted; "image warmups" shows how far they are. The exit
    status is 1 if a host that was waited for is not warm.
    """
    if [hosts is not None, rack is not None, everybody].count(True) != 1:
        raise click.UsageError("say which hosts: give one of --hosts, --rack and --all")
    with reported():
        names = (
            None if hosts is None else tuple(check_name("host", one) for one in hosts.split(","))
        )
        known = _warmups(options)
        asked = known.ask(
            image, check_name("workload", workload), Chosen(names, rack), datetime.now(UTC)
        )
        if wait:
            asked = _wait(lambda: known.index(image), {one.host for one in asked}, workload)
    _show(asked, as_json)
    cold = sum(one.state != Warming.WARM for one in asked)
    if wait and cold:
        raise click.ClickException(f"{cold} of {len(asked)} hosts are not warm")


@click.command("warmups")
@click.argument("image")
@_json
@click.pass_obj
def index(options: cfg.ConfigOpts, image: str, as_json: bool) -> None:
    """Show which hosts were asked to warm IMAGE, and how far they are.

    LEFT: the host was warm, and has left IMAGE since.
    """
    with reported():
        found = _warmups(options).index(image)
    _show(found, as_json)


def _wait(
    look: Callable[[], Sequence[Warmup]], names: Collection[str], workload: str
) -> list[Warmup]:
    """Return what the hosts say once all have ended, or are not known any more."""
    while True:
        found = [one for one in look() if one.host in names]
        ended = sum(one.state.is_end for one in found)
        if sys.stderr.isatty():
            click.echo(f"\r{_progress(found)}\x1b[K", err=True, nl=ended == len(found))
        if ended == len(found):
            gone = sorted(set(names) - {one.host for one in found})
            return found + [_gone(name, workload) for name in gone]
        time.sleep(_LOOK)


def _progress(found: Sequence[Warmup]) -> str:
    warm, failed = (
        sum(one.state == state for one in found) for state in (Warming.WARM, Warming.FAILED)
    )
    there, wanted = (
        sum(getattr(one, name) for one in found) / _MIB for name in ("there", "wanted")
    )
    return (
        f"{warm} of {len(found)} hosts are warm, {failed} failed; "
        f"{there:.1f} of {wanted:.1f} MiB are there"
    )


def _gone(name: str, workload: str) -> Warmup:
    why, now = "Volt does not know the host any more", datetime.now(UTC)
    return Warmup(name, workload, Warming.FAILED, 0, 0, why, now, False)


def _show(found: Sequence[Warmup], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"warmups": found}, indent=2, default=json_format.plain))
        return
    rows = [
        (one.host, one.workload, _state(one), one.there, one.wanted, one.detail) for one in found
    ]
    table(("HOST", "WORKLOAD", "STATE", "THERE", "WANTED", "DETAIL"), rows)


def _state(one: Warmup) -> str:
    return "left" if one.state == Warming.WARM and not one.attached else one.state.value


def _warmups(options: cfg.ConfigOpts) -> Warmups:
    engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
    return Warmups(engine, Turns())
