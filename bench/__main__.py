"""The measurements as commands, such as ``python -m bench volt``."""

import itertools
import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click

from bench import agent, churn, fanout, hops, openstack, recording, report, storm, volt, whole
from bench import plot as picture
from bench.peers import PEERS
from bench.peers.virtman import SHAPES
from lab.errors import LabError
from planning.cmd.model import main as model

_json = click.option("--json", "target", type=click.Path(path_type=Path), help="Also write a file.")


def _words(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    return text.split(",")


@click.group()
def main() -> None:
    """Measure VirtMan on this machine."""


main.add_command(model, "model")


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
@click.option("--images", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option(
    "--places", type=click.IntRange(1, 1000), default=1, show_default=True,
    help="Images that each host joins.",
)  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(1, 64),
    help="Of Volt; by default 4, and 1 on SQLite.",
)  # fmt: skip
@_json
def measure_volt(
    hosts: int,
    databases: tuple[str, ...],
    images: int,
    places: int,
    workers: int | None,
    target: Path | None,
) -> None:
    """Let many hosts join images, report and die."""
    if places > images:
        raise click.BadParameter("must not be above --images", param_hint="--places")
    runs = []
    for database in databases:
        with report.Progress(database) as progress:
            load = volt.Load(hosts, images, places)
            runs.append(volt.measure(database, load, workers, progress))
    report.show_volt(runs)
    _write(target, runs)


@main.command("churn")
@click.option("--hosts", type=click.IntRange(10, 10_000), default=5_000, show_default=True)
@click.option("--minutes", type=click.FloatRange(2, 60), default=5, show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), default=3, show_default=True)
@_json
def measure_churn(hosts: int, minutes: float, workers: int, target: Path | None) -> None:
    """Let hosts come, go, die and wait for news, while Volt and PostgreSQL are killed."""
    with report.Progress("churn") as progress:
        run = churn.measure(hosts, minutes, workers, progress)
    report.show_churn(run)
    _write(target, [run])


@main.command("fanout")
@click.option(
    "--nodes", default="7", show_default=True, callback=lambda *given: _numbers(given[2]),
    help="How many, with commas for more than one run.",
)  # fmt: skip
@click.option(
    "--link-rate", "link_rates", default="25mbit", show_default=True, callback=_words,
    help="Of each node's link, both ways, with commas for more than one run; none for no limit.",
)  # fmt: skip
@click.option(
    "--workload",
    type=click.Choice(("order", *storm.WORKLOADS)),
    default="order",
    show_default=True,
    help="Read the first bytes in order, or the reads of a boot with its pauses, or boot guests.",
)
@click.option(
    "--shapes", default="forest,tree,star", show_default=True, callback=_words,
    help=f"Of the trees that are read in order, with commas: {', '.join(SHAPES)}.",
)  # fmt: skip
@click.option(
    "--bytes", "size", default="24M", show_default=True,
    callback=lambda context, parameter, value: _bytes(value),
    help="That all nodes read in order, such as 24M or 24MiB; a multiple of 512.",
)  # fmt: skip
@click.option(
    "--peers", default=",".join(PEERS), show_default=True, callback=_words,
    help="Ways to boot, with commas.",
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(path_type=Path), callback=lambda *given: _picture(given[2]),
    help="Also draw the boots, as SVG or PNG by the file's suffix.",
)  # fmt: skip
@_json
def measure_fanout(
    nodes: Sequence[int],
    link_rates: Sequence[str],
    workload: str,
    shapes: Sequence[str],
    size: int,
    peers: Sequence[str],
    plot: Path | None,
    target: Path | None,
) -> None:
    """Let all nodes read a cold image at once, or boot from it."""
    _known("shape", shapes, SHAPES)
    _known("peer", peers, PEERS)
    runs: list[dict[str, Any]] = []
    ratios: dict[str, Any] = {}
    for count, rate in itertools.product(nodes, link_rates):
        limit = None if rate == "none" else rate
        try:
            with report.Progress(f"{count} nodes, {rate}") as progress:
                if workload == "order":
                    found = fanout.measure(count, rate, shapes, size, progress)
                else:
                    found = storm.measure(count, limit, peers, workload, progress)
        except LabError as err:
            raise click.ClickException(str(err)) from err
        runs += found
        if workload == "order":
            report.show_fanout(found)
            _write(target, runs)
        else:
            report.show_storm(found)
            ratios[f"{count}x{rate}"] = storm.ratios(found)
            _write(target, runs, ratios)
            if plot is not None:
                picture.draw(runs, plot)


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


@main.command("whole")
@click.option(
    "--nodes", type=click.IntRange(2, 64), default=7, show_default=True,
    help="How many copy the image.",
)  # fmt: skip
@click.option(
    "--link-rate", default="25mbit", show_default=True, help="Of each node's link, both ways."
)
@click.option(
    "--bytes", "size", default="64M", show_default=True,
    callback=lambda context, parameter, value: _bytes(value),
    help="Of the image, such as 64M or 64MiB; a multiple of 512.",
)  # fmt: skip
@click.option(
    "--plot", type=click.Path(path_type=Path), callback=lambda *given: _picture(given[2]),
    help="Also draw the copies, as SVG or PNG by the file's suffix.",
)  # fmt: skip
@_json
def measure_whole(
    nodes: int, link_rate: str, size: int, plot: Path | None, target: Path | None
) -> None:
    """Have nodes copy whole images: what that takes, sends, and makes VMs wait."""
    try:
        with report.Progress(f"{nodes} nodes, {link_rate}") as progress:
            runs = whole.measure(nodes, link_rate, size, progress)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    ratios = whole.ratios(runs)
    report.show_whole(ratios)
    _write(target, runs, ratios)
    if plot is not None:
        picture.draw_copies(runs, plot)


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
@click.option(
    "--modes", default=",".join(openstack.MODES), show_default=True, callback=_words,
    help="Ways to boot, with commas.",
)  # fmt: skip
@click.option(
    "--link-rate", default="100M", show_default=True,
    help="Of each node's link, both ways; none for no limit.",
)  # fmt: skip
@_json
def measure_openstack(
    servers: int, modes: Sequence[str], link_rate: str, target: Path | None
) -> None:
    """Boot servers of one snapshot or image in a real OpenStack, by VirtMan and without."""
    _known("mode", modes, openstack.MODES)
    rate = None if link_rate == "none" else link_rate
    runs: list[dict[str, Any]] = []
    try:
        with report.Progress("openstack") as progress:
            for run in openstack.measure(modes, servers, rate, progress):
                runs.append(run)
                _write(target, runs, openstack.ratios(runs))
    except LabError as err:
        raise click.ClickException(str(err)) from err
    finally:
        report.show_openstack(runs)


@main.command("traces")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--workloads", default=",".join(recording.WORKLOADS), show_default=True, callback=_words,
    help="What is recorded, with commas.",
)  # fmt: skip
@click.option("--runs", type=click.IntRange(2, 100), default=10, show_default=True)
def record_traces(folder: Path, workloads: Sequence[str], runs: int) -> None:
    """Record which pieces of an image programs read, for virtman-simulate prefetch."""
    _known("workload", workloads, recording.WORKLOADS)
    try:
        found = recording.record(folder, workloads, runs)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    report.show_traces(found)


def _picture(file: Path | None) -> Path | None:
    if file is not None and file.suffix not in (".svg", ".png"):
        raise click.BadParameter(f"{str(file)!r} must end with .svg or .png")
    return file


def _known(what: str, given: Sequence[str], known: Collection[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise click.BadParameter(f"no such {what}: {', '.join(unknown)}", param_hint=f"--{what}s")


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([1-9]\d*)(?:([KMG])(?:iB)?)?", text)
    if match:
        number: int = int(match[1]) * 1024 ** " KMG".index(match[2] or " ")
        if number % 512 == 0:
            return number
    raise click.BadParameter(f"{text!r} is no multiple of 512 such as 24M or 1048576")


def _numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",") if word.isdecimal()]
    if len(numbers) != len(text.split(",")) or not all(1 <= one <= 64 for one in numbers):
        raise click.BadParameter(f"{text!r} is no number from 1 to 64, nor some with commas")
    return numbers


def _write(target: Path | None, runs: Sequence[Any], ratios: object = None) -> None:
    if target is not None:
        found = {"runs": runs} if ratios is None else {"runs": runs, "ratios": ratios}
        target.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
