"""The measurements as commands, such as ``python -m bench volt``."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from bench import agent, fanout, hops, openstack, report, volt
from lab.errors import LabError

_json = click.option("--json", "target", type=click.Path(path_type=Path), help="Also write a file.")


@click.group()
def main() -> None:
    """Measure VirtMan on this machine."""


@main.command("volt")
@click.option("--hosts", type=click.IntRange(100, 20_000), default=10_000, show_default=True)
@click.option(
    "--database",
    "databases",
    type=click.Choice(sorted(volt.WORKERS)),
    multiple=True,
    default=("postgresql", "sqlite"),
    show_default=True,
    help="Measure on this database; may be given several times.",
)
@_json
def measure_volt(hosts: int, databases: tuple[str, ...], target: Path | None) -> None:
    """Let many hosts join one image, report and die."""
    runs = []
    for database in databases:
        with report.Progress(database) as progress:
            runs.append(volt.measure(database, hosts, progress))
    report.show_volt(runs)
    _write(target, runs)


@main.command("fanout")
@click.option("--nodes", type=click.IntRange(1, 64), default=7, show_default=True)
@click.option(
    "--link-rate", default="25mbit", show_default=True, help="Of each node's link, both ways."
)
@click.option(
    "--shapes",
    default="forest,tree,star",
    show_default=True,
    callback=lambda context, parameter, value: value.split(","),
    help=f"Of the trees, with commas: {', '.join(fanout.SHAPES)}.",
)
@click.option(
    "--bytes", "size", default="24M", show_default=True,
    callback=lambda context, parameter, value: _bytes(value),
    help="That all nodes read, such as 24M or 24MiB; a multiple of 512.",
)  # fmt: skip
@_json
def measure_fanout(
    nodes: int, link_rate: str, shapes: Sequence[str], size: int, target: Path | None
) -> None:
    """Let all nodes read a cold image at once, through trees of each shape."""
    unknown = sorted(set(shapes) - fanout.SHAPES.keys())
    if unknown:
        raise click.BadParameter(f"no such shape: {', '.join(unknown)}", param_hint="--shapes")
    try:
        with report.Progress("fanout") as progress:
            runs = fanout.measure(nodes, link_rate, shapes, size, progress)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    report.show_fanout(runs)
    _write(target, runs)


@main.command("agent")
@click.option("--images", type=click.IntRange(1, 100), default=20, show_default=True)
@click.option("--vms", type=click.IntRange(1, 1000), default=200, show_default=True)
@_json
def measure_agent(images: int, vms: int, target: Path | None) -> None:
    """Create VMs on one node: the first, more, and many of many images; read a warm one."""
    try:
        with report.Progress("agent") as progress:
            run = agent.measure(images, vms, progress)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    report.show_agent(run)
    _write(target, [run])


@main.command("hops")
@_json
def measure_hops(target: Path | None) -> None:
    """Read cold blocks through a chain of nodes, and the same without VirtMan."""
    try:
        with report.Progress("hops") as progress:
            run = hops.measure(progress)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    report.show_hops(run)
    _write(target, [run])


@main.command("openstack")
@click.option("--servers", type=click.IntRange(1, 8), default=4, show_default=True)
@_json
def measure_openstack(servers: int, target: Path | None) -> None:
    """Boot servers of one snapshot in a real OpenStack: a volume for each, and by VirtMan."""
    try:
        with report.Progress("openstack") as progress:
            runs = openstack.measure(servers, progress)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    report.show_openstack(runs)
    _write(target, runs)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([1-9]\d*)(?:([KMG])(?:iB)?)?", text)
    if match:
        number: int = int(match[1]) * 1024 ** " KMG".index(match[2] or " ")
        if number % 512 == 0:
            return number
    raise click.BadParameter(f"{text!r} is no multiple of 512 such as 24M or 1048576")


def _write(target: Path | None, runs: Sequence[Any]) -> None:
    if target is not None:
        target.write_text(json.dumps({"runs": runs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
