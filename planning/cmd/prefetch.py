"""``virtman-simulate prefetch``: what policies of prefetch are worth for one client."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from planning.cmd import options, table
from planning.replay import policy, run, traces
from virtman.model.buffering import Connection


def _line(text: str) -> Connection:
    rate, slash, round_trip = text.partition("/")
    if not slash:
        raise click.BadParameter(f"{text!r} is no line: write it like 7.2M/120ms")
    line = Connection(options.rate(rate), options.seconds(round_trip))
    if not line.rate:
        raise click.BadParameter(f"{text!r}: such a line carries nothing")
    return line


@click.command("prefetch")
@click.option(
    "--traces",
    "files",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    multiple=True,
    help="Runs of a workload, as written by python -m bench traces; may be given several times.  "
    "[default: those that come with VirtMan]",
)
@click.option(
    "--line",
    "lines",
    type=options.several(_line),
    metavar="RATE/TIME,...",
    default="7.2M/120ms,25M/1ms",
    show_default=True,
    help="Rate and round trip of the client's line.",
)
@click.option(
    "--policy",
    "policies",
    type=options.several(str),
    metavar="POLICY,...",
    default=",".join(policy.NAMES),
    show_default=True,
    help="What is fetched ahead.",
)
@options.json_file
def prefetch(
    files: tuple[Path, ...],
    lines: tuple[Connection, ...],
    policies: tuple[str, ...],
    json_file: Path | None,
) -> None:
    """Replay recorded runs on one client, by what others read.

    Each run is left out once. Figures are those of vTube's Figures 13 and 14, on average.
    """
    options.check_known("policy", policies, policy.NAMES)
    with options.reported():
        found = [
            {
                "workload": one.workload,
                "runs": len(one.runs),
                "rate": line.rate,
                "round_trip_s": line.round_trip_s,
                "policy": name,
                **_figures(run.average(one, name, line)),
            }
            for one in ([traces.read(file) for file in files] or traces.recorded())
            for line in lines
            for name in policies
        ]
        table.show([title for title, _ in _COLUMNS], [_row(one) for one in found])
        options.write_json(json_file, "prefetch", {"runs": found})


_COLUMNS = (
    ("workload", "{workload}"),
    ("line", "{mbit:g} Mbit/s"),
    ("policy", "{policy}"),
    ("read", "{accessed_mib:.1f} MiB"),
    ("fetch ratio", "{fetch_ratio:.2f}"),
    ("missed", "{miss_rate:.1%}"),
    ("waited", "{waited_s:.1f} s"),
    ("buffering", "{buffering_ratio:.0%}"),
    ("stops", "{stops:.1f}/min"),
    ("longest", "{longest_s:.1f} s"),
)


def _figures(found: run.Figures) -> dict[str, float]:
    ratios = {"fetch_ratio": found.fetch_ratio, "buffering_ratio": found.buffering_ratio}
    return asdict(found) | ratios


def _row(found: dict[str, Any]) -> list[str]:
    units = {"mbit": found["rate"] * 8 / 1e6, "accessed_mib": found["accessed"] / 2**20}
    return [form.format(**found, **units) for _, form in _COLUMNS]
