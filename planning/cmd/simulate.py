"""The ``virtman-simulate`` command: boots at once, event by event."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from planning import measured
from planning.cmd import options, table
from planning.cmd.prefetch import prefetch
from planning.cmd.ring import ring
from volt.placement import shapes
from volt.placement.rules import Rules, Shape

try:
    from planning.simulation import agreement, fanout, prediction
    from planning.simulation.run import run
    from planning.simulation.scenario import Boot, Cluster, Design, Scenario
except ImportError as err:
    raise SystemExit(
        "virtman-simulate needs the Python packages numpy and simpy: install them, or VirtMan with"
        f' the extra "simulate" ({err})'
    ) from err


@click.group(context_settings=options.SETTINGS)
@options.version_option("virtman-simulate")
def main() -> None:
    """Simulate boots at once on hosts that nobody has: no host is touched.

    A rate is in bits a second, such as 25M or 10G; a size in bytes, such as 64K or 2GiB; a time
    in seconds, such as 20 or 0.5ms.
    """


main.add_command(prefetch)
main.add_command(ring)

_share = click.FloatRange(0, 1)
_below_one = click.FloatRange(0, 1, max_open=True)


@main.command("run")
@options.of_hosts
@click.option(
    "--vms",
    type=options.hosts,
    metavar="N",
    default="1",
    show_default=True,
    help="VMs on each host, not in all; they read the same copy.",
)
@options.of_racks
@options.of_links
@click.option(
    "--uplink-rate",
    type=options.rate,
    metavar="RATE",
    help="Of all uplinks of a rack together, each way.  [default: no limit]",
)
@click.option(
    "--core-rate",
    type=options.rate,
    metavar="RATE",
    help="Of all that goes from rack to rack.  [default: no limit]",
)
@options.of_source
@click.option(
    "--others",
    type=_below_one,
    default=0,
    show_default=True,
    help="Share of all links that other traffic takes.",
)
@click.option(
    "--stragglers",
    type=_share,
    default=0,
    show_default=True,
    help="Share of the hosts whose link has a tenth of the rate.",
)
@click.option(
    "--working-set", type=options.size, metavar="SIZE", required=True, help="What a boot reads."
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
    "--shape",
    type=click.Choice([str(one) for one in Shape]),
    default="forest",
    show_default=True,
    help="Of the trees.",
)
@click.option("--stripes", type=int, help="Trees of an image.  [default: of the shape]")
@click.option("--fanout", type=int, help="Hosts that a host feeds.  [default: of the shape]")
@click.option(
    "--prefetch/--no-prefetch",
    default=True,
    show_default=True,
    help="Whether hosts fetch ahead of their VMs.",
)
@click.option(
    "--window",
    type=int,
    default=2,
    show_default=True,
    help="Pieces that a host fetches ahead at once, in each stripe.",
)
@click.option(
    "--racks-told/--no-racks-told",
    default=True,
    show_default=True,
    help="Whether Volt knows the racks.",
)
@click.option(
    "--speeds-told/--no-speeds-told",
    default=True,
    show_default=True,
    help="Whether Volt knows how fast hosts' links are.",
)
@click.option(
    "--measured",
    "bed",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="What attaching and a hop take, as written by python -m bench hops --json.  [default: "
    "figures of the project's test bed]",
)
@click.option(
    "--attach",
    type=options.seconds,
    metavar="SECONDS",
    help=f"Until a host has its devices.  [default: {measured.BED.attach_s}, or as measured]",
)
@click.option(
    "--cascade", is_flag=True, help="A host can only attach when its parent has, as in the paper."
)
@click.option(
    "--joins",
    type=options.seconds,
    metavar="SECONDS",
    default="0",
    show_default=True,
    help="Over which hosts begin.",
)
@click.option(
    "--deaths",
    type=_below_one,
    default=0,
    show_default=True,
    help="Share of the hosts that die on the way.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is random.")
@options.json_file
def simulate(json_file: Path | None, **given: Any) -> None:
    """Simulate one boot storm."""
    with options.reported():
        result = run(_scenario(given))
        found = prediction.figures(result)
        table.show(["", ""], [[title, form.format(found[key])] for title, key, form in _ROWS])
        options.write_json(json_file, "run", {"runs": [{"design": given["shape"], **found}]})


@main.command("agree")
@click.option(
    "--group",
    "groups",
    type=options.several(str),
    metavar="GROUP,...",
    default=",".join(agreement.GROUPS),
    show_default=True,
    help="Where the references are from.",
)
@click.option(
    "--fanout",
    "files",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    multiple=True,
    help="Take the runs of python -m bench fanout --json instead; may be given several times.",
)
@options.json_file
def agree(groups: tuple[str, ...], files: tuple[Path, ...], json_file: Path | None) -> None:
    """Tell how far simulated cases are from what is known.

    The lab's are those of contributor/bench.rst.
    """
    options.check_known("group", groups, agreement.GROUPS)
    with options.reported():
        cases = [one for file in files for one in fanout.read(file)] or agreement.cases()
        found = [agreement.compare(one) for one in cases if one.group in groups]
        table.show(["case", "ours", "reference", "difference"], agreement.table(found))
        options.write_json(
            json_file,
            "agree",
            {
                "agreement": [
                    {
                        "case": one.case,
                        "ours": one.ours,
                        "reference": one.reference,
                        "difference": one.difference,
                    }
                    for one in found
                ]
            },
        )


@main.command("predict")
@click.option(
    "--site",
    "sites",
    type=options.several(str),
    metavar="SITE,...",
    default=",".join(prediction.SITES),
    show_default=True,
    help="What is simulated.",
)
@click.option(
    "--hosts",
    type=options.hosts,
    metavar="N",
    help="Instead of those of the sites, for a quick look; racks are as large as they were.",
)
@options.json_file
def predict(sites: tuple[str, ...], hosts: int | None, json_file: Path | None) -> None:
    """Simulate the paper's design and this one on large sites.

    All sites together take ten minutes.
    """
    options.check_known("site", sites, prediction.SITES)
    runs: list[dict[str, Any]] = []
    with options.reported():
        for one in prediction.planned(sites):
            found = prediction.figures(run(_smaller(one.scenario, hosts)))
            runs.append({"site": one.site, "design": one.design, **found})
            options.write_json(json_file, "predict", {"runs": runs})
        titles = ["site", "design", *(title for title, _, _ in _ROWS)]
        rows = [
            [each["site"], each["design"], *(form.format(each[key]) for _, key, form in _ROWS)]
            for each in runs
        ]
        table.show(titles, rows)


_ROWS = (
    ("first", "first_s", "{:.1f} s"),
    ("median", "median_s", "{:.1f} s"),
    ("last", "last_s", "{:.1f} s"),
    ("limit", "limit_s", "{:.1f} s"),
    ("last/limit", "last_over_limit", "{:.2f}"),
    ("died", "deaths", "{}"),
    ("source", "source_over_set", "{:.2f}"),
    ("busiest", "busiest_over_set", "{:.2f}"),
    ("uplink", "uplink_over_set", "{:.1f}"),
    ("waits", "waits", "{}"),
    ("longest", "longest_wait_s", "{:.2f} s"),
)


def _scenario(given: dict[str, Any]) -> Scenario:
    shape = Shape(given["shape"])
    usual = shapes.usual(shape)
    stripes = usual.stripes if given["stripes"] is None else given["stripes"]
    fanout = usual.fanout if given["fanout"] is None else given["fanout"]
    cluster = Cluster(
        hosts=given["hosts"],
        link=given["link_rate"],
        racks=given["racks"],
        uplink=_or_endless(given["uplink_rate"]),
        core=_or_endless(given["core_rate"]),
        source=given["source_rate"],
        stragglers=given["stragglers"],
        others=given["others"],
    )
    costs = measured.BED if given["bed"] is None else measured.read(given["bed"])
    design = Design(
        rules=Rules(shape, stripes, fanout),
        ahead=given["prefetch"],
        window=given["window"],
        knows_racks=given["racks_told"],
        knows_speeds=given["speeds_told"],
        attach_s=costs.attach_s if given["attach"] is None else given["attach"],
        cascades=given["cascade"],
    )
    boot = Boot(given["working_set"], given["boot_time"], vms=given["vms"])
    return Scenario(
        cluster,
        boot,
        design,
        joins_s=given["joins"],
        deaths=given["deaths"],
        seed=given["seed"],
        hop_s=costs.hop_s,
    )


def _or_endless(rate: float | None) -> float:
    return math.inf if rate is None else rate


def _smaller(scenario: Scenario, hosts: int | None) -> Scenario:
    if hosts is None:
        return scenario
    cluster = scenario.cluster
    racks = max(1, round(hosts * cluster.racks / cluster.hosts))
    return replace(scenario, cluster=replace(cluster, hosts=hosts, racks=racks))


if __name__ == "__main__":
    main()
