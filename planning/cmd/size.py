"""What to choose and to buy: ``virtman-model size``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from planning import measured
from planning.cmd import options
from planning.errors import Invalid
from planning.sizing import Answer, Site, Sizing


@click.command("size")
@options.of_hosts
@click.option(
    "--vms",
    type=options.hosts,
    metavar="N",
    help="VMs in all, not on each host.  [default: one a host]",
)
@options.of_racks
@options.of_links
@click.option(
    "--uplink-rate",
    type=options.rate,
    metavar="RATE",
    help="Of all uplinks of a rack together, each way; needed for more than one rack.",
)
@options.of_source
@click.option(
    "--others",
    type=click.FloatRange(0, 1, max_open=True),
    default=0,
    show_default=True,
    help="Share of all links that other traffic needs.",
)
@click.option("--image", type=options.size, metavar="SIZE", required=True, help="Of the disk.")
@click.option(
    "--working-set",
    type=options.size,
    metavar="SIZE",
    required=True,
    help="What a boot reads of it.",
)
@click.option(
    "--images",
    type=options.hosts,
    metavar="N",
    default="1",
    show_default=True,
    help="That a host has in use at the same time.",
)
@click.option(
    "--boot-time",
    type=options.seconds,
    metavar="SECONDS",
    default="20",
    show_default=True,
    help="Of a guest if nothing waits.",
)
@click.option(
    "--attach",
    type=options.seconds,
    metavar="SECONDS",
    default=str(measured.BED.attach_s),
    show_default=True,
    help="Until a host has its devices.",
)
@click.option(
    "--seconds",
    type=options.seconds,
    metavar="SECONDS",
    required=True,
    help="In which all VMs shall be ready.",
)
@options.json_file
@options.csv_file
def size(json_file: Path | None, csv_file: Path | None, **given: Any) -> None:
    """Tell what to choose and to buy so that all VMs are ready in time, with reasons."""
    with options.reported():
        if given["uplink_rate"] is None and given["racks"] > 1:
            raise Invalid("several racks: say what their uplinks carry, --uplink-rate")
        site = Site(
            hosts=given["hosts"],
            racks=given["racks"],
            vms=given["vms"] or given["hosts"],
            link=given["link_rate"],
            uplink=_or_a_hosts(given["uplink_rate"], given),
            source=_or_a_hosts(given["source_rate"], given),
            others=given["others"],
            image=given["image"],
            working_set=given["working_set"],
            images=given["images"],
            boot_s=given["boot_time"],
            wanted_s=given["seconds"],
            attach_s=given["attach"],
        )
        sizing = Sizing(site)
        answers = sizing.answers()
        for one in answers:
            click.echo(f"{one.what}: {_value(one)}\n{_indented(one.reason, 4)}")
        verdict = "in time" if sizing.is_reached else f"later than {site.wanted_s:g} s"
        click.echo(f"the last VM is ready after {sizing.last_s:.1f} s: {verdict}, limited by")
        for limit in sizing.limits:
            click.echo(f"    {limit.what}: {limit.seconds:.1f} s\n{_indented(limit.reason, 8)}")
        found = {
            "answers": [asdict(one) for one in answers],
            "limits": [asdict(one) for one in sizing.limits],
            "last_s": sizing.last_s,
            "reached": sizing.is_reached,
        }
        options.write_json(json_file, "size", found)
        options.write_csv(
            csv_file,
            ["kind", "what", "value", "unit", "reason"],
            [
                *(["answer", one.what, one.value, one.unit, one.reason] for one in answers),
                *(["limit", one.what, one.seconds, "s", one.reason] for one in sizing.limits),
            ],
        )


def _or_a_hosts(rate: float | None, given: dict[str, Any]) -> float:
    link: float = given["link_rate"]
    return link if rate is None else rate


def _indented(text: str, by: int) -> str:
    return click.wrap_text(text, initial_indent=" " * by, subsequent_indent=" " * by)


def _value(answer: Answer) -> str:
    if answer.value is None:
        return "none"
    if answer.unit == "bytes":
        return f"{answer.value / 2**20:,.0f} MiB"
    if answer.unit == "bytes/s":
        return f"{answer.value * 8 / 1e6:,.0f} Mbit/s, {answer.value / 2**20:,.1f} MiB/s"
    return f"{answer.value:g}"
