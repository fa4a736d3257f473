"""``virtman-simulate ring``: what a ring would be worth beside trees."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from planning.cmd import options, table
from planning.ring import balance, reading, v_nodes
from planning.ring.reading import Answered, Site


def _share(text: str) -> float:
    share = options.number(text)
    if not 0 < share <= 1:
        raise click.BadParameter(f"{text!r} is no share of the image: more than 0, and at most 1")
    return share


@click.command("ring")
@click.option(
    "--hosts", type=options.hosts, metavar="N", default="7", show_default=True, help="That read."
)
@options.of_racks
@click.option(
    "--regions",
    type=click.IntRange(1, 100_000),
    default=512,
    show_default=True,
    help="Parts of the image that are cached one by one.",
)
@click.option(
    "--cache",
    "caches",
    type=options.several(_share),
    metavar="SHARE,...",
    default="0.125,0.25,0.5,1",
    show_default=True,
    help="Share of the image that a host's cache holds.",
)
@click.option(
    "--skew",
    type=click.FloatRange(0, 10),
    default=0,
    show_default=True,
    help="How much more often some regions are read: the one of rank n as often as 1/n**SKEW.",
)
@click.option(
    "--own-rack", is_flag=True, help="Have hosts ask only hosts of their own rack, if it is a ring."
)
@click.option(
    "--traffic",
    type=click.FloatRange(0, min_open=True),
    default=2,
    show_default=True,
    help="Other traffic of a host, over what it is asked for by the ring, on average.",
)
@click.option(
    "--cv",
    "spreads",
    type=options.several(options.number),
    metavar="CV,...",
    default="0,0.4,0.8,1.2",
    show_default=True,
    help="Coefficient of variation of that traffic.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is random.")
@options.json_file
def ring(
    hosts: int,
    racks: int,
    regions: int,
    caches: tuple[float, ...],
    skew: float,
    own_rack: bool,
    traffic: float,
    spreads: tuple[float, ...],
    seed: int,
    json_file: Path | None,
) -> None:
    """Compare a ring with trees, where caches are small.

    At first: what VMs cost that read an image again and again, alone, in trees, in a ring of Volt,
    in the same if caches kept what was used last, and in a ring of ACStor. Then: how evenly hosts
    are loaded if their parts of the ring follow their other traffic (ACStor, 5.4.2).
    """
    with options.reported():
        reads = []
        for share in caches:
            site = Site(hosts, regions, max(1, round(share * regions)), racks, skew, seed)
            designs = {
                "alone": reading.alone(site),
                "trees": reading.trees(site),
                "one-cache": reading.shaped(site, keeps_owned=False),
                "volt": reading.shaped(site, keeps_owned=True),
                "ring": reading.ring(site, v_nodes.OWN_RACK if own_rack else v_nodes.ANYWHERE),
            }
            reads += [
                {"cache": share, "design": name, **_shares(one)} for name, one in designs.items()
            ]
        loads = [
            {**asdict(one), "cv": cv, "cv_after": one.cv}
            for cv in spreads
            for one in balance.balances(balance.traffic(hosts, traffic, cv, seed), float(hosts))
        ]
    table.show([title for title, _ in _READS], [_row(_READS, one) for one in reads])
    click.echo()
    table.show([title for title, _ in _LOADS], [_row(_LOADS, one) for one in loads])
    options.write_json(json_file, "ring", {"reads": reads, "loads": loads})


_READS = (
    ("cache", "{cache:g}"),
    ("design", "{design}"),
    ("at home", "{at_home:.1%}"),
    ("source", "{source:.3f}"),
    ("links", "{links:.2f}"),
    ("rack to rack", "{rack_to_rack:.2f}"),
    ("busiest", "{busiest:.2f}"),
)
_LOADS = (
    ("cv", "{cv:g}"),
    ("parts", "{weights}"),
    ("cv with the ring", "{cv_after:.2f}"),
    ("busiest", "{busiest:.2f}"),
    ("moved", "{moved:.0%}"),
)


def _shares(found: Answered) -> dict[str, float]:
    return {
        "at_home": found.home_share,
        "source": found.source_share,
        "links": found.link_share,
        "rack_to_rack": found.crossed_share,
        "busiest": found.busiest_share,
    }


def _row(columns: tuple[tuple[str, str], ...], found: dict[str, Any]) -> list[str]:
    return [form.format(**found) for _, form in columns]
