"""The measurements as commands, such as ``python -m bench volt``."""

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bench import (
    agent,
    churn,
    fanout,
    hops,
    openstack,
    page,
    recording,
    report,
    results,
    resume,
    ring,
    sharing,
    storm,
    volt,
    whole,
)
from bench import plot as picture
from bench.peers import PEERS
from bench.peers.virtman import SHAPES
from lab.errors import LabError
from planning.cmd.model import main as model

_json = click.option("--json", "target", type=click.Path(path_type=Path), help="Also write a file.")
_plot = click.option(
    "--plot", type=click.Path(path_type=Path), callback=lambda *given: _picture(given[2]),
    help="Also draw all runs, as SVG or PNG by the file's suffix.",
)  # fmt: skip


def _size(default: str, what: str) -> Callable[[Any], Any]:
    """Return the option --bytes."""
    return click.option(
        "--bytes", "size", default=default, show_default=True,
        callback=lambda *given: _bytes(given[2]),
        help=f"{what}, such as {default} or {default}iB; a multiple of 512.",
    )  # fmt: skip


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
    "--racks", type=click.IntRange(0, 1000), default=0, show_default=True,
    help="Over which hosts are spread; 0 if no host tells its rack.",
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
    racks: int,
    workers: int | None,
    target: Path | None,
) -> None:
    """Let many hosts join images, report and die."""
    if places > images:
        raise click.BadParameter("must not be above --images", param_hint="--places")
    runs = []
    for database in databases:
        with report.Progress(database) as progress:
            load = volt.Load(hosts, images, places, racks)
            runs.append(volt.measure(database, load, workers, progress))
    _done(target, "volt", runs)


@main.command("churn")
@click.option("--hosts", type=click.IntRange(10, 10_000), default=5_000, show_default=True)
@click.option("--minutes", type=click.FloatRange(2, 60), default=5, show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), default=3, show_default=True)
@_json
def measure_churn(hosts: int, minutes: float, workers: int, target: Path | None) -> None:
    """Let hosts come, go, die and wait for news, while Volt and PostgreSQL are killed."""
    with report.Progress("churn") as progress:
        run = churn.measure(hosts, minutes, workers, progress)
    _done(target, "churn", [run])


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
    "workloads",
    default="order",
    show_default=True,
    callback=_words,
    help="Read the first bytes in order, or the reads of a boot with its pauses (replay), or boot "
    "guests (boot); these two may be given with a comma.",
)
@click.option(
    "--shapes", default="forest,tree,star", show_default=True, callback=_words,
    help=f"Of the trees that are read in order, with commas: {', '.join(SHAPES)}.",
)  # fmt: skip
@_size("24M", "That all nodes read in order")
@click.option(
    "--kill", is_flag=True,
    help="In the end, read a forest in order once more, and kill a parent half way.",
)  # fmt: skip
@click.option(
    "--peers", default=",".join(PEERS), show_default=True, callback=_words,
    help="Ways to boot, with commas.",
)  # fmt: skip
@_plot
@_json
def measure_fanout(
    nodes: Sequence[int],
    link_rates: Sequence[str],
    workloads: Sequence[str],
    shapes: Sequence[str],
    size: int,
    kill: bool,
    peers: Sequence[str],
    plot: Path | None,
    target: Path | None,
) -> None:
    """Let all nodes read a cold image at once, or boot from it."""
    _known("shape", shapes, SHAPES)
    _known("peer", peers, PEERS)
    if workloads != ["order"]:
        _known("workload", workloads, storm.WORKLOADS)
    if kill and (workloads != ["order"] or "none" in link_rates):
        raise click.BadParameter(
            "is of what is read in order, over links with a rate", param_hint="--kill"
        )
    runs: list[dict[str, Any]] = []
    ratios: dict[str, Any] = {}
    for count, rate in itertools.product(nodes, link_rates):
        before = len(runs)
        for workload in workloads:
            limit = None if rate == "none" else rate
            try:
                with report.Progress(f"{workload}, {count} nodes, {rate}") as progress:
                    if workload == "order":
                        found = fanout.measure(count, limit, shapes, size, kill, progress)
                    else:
                        found = storm.measure(count, limit, peers, workload, progress)
            except LabError as err:
                raise click.ClickException(str(err)) from err
            runs += found
            if workload == "order":
                report.show(results.of("fanout", found))
                _write(target, results.of("fanout", runs))
            else:
                report.show(results.of("storm", found))
                ratios[storm.key(count, rate)] = storm.ratios(runs[before:])
                _write(target, results.of("storm", runs, ratios))
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
    _done(target, "agent", [run])


@main.command("whole")
@click.option(
    "--nodes", type=click.IntRange(2, 64), default=7, show_default=True,
    help="How many copy the image.",
)  # fmt: skip
@click.option(
    "--link-rate", default="25mbit", show_default=True, help="Of each node's link, both ways."
)
@_size("64M", "Of the image")
@click.option(
    "--rates", callback=lambda *given: _sizes(given[2]), default="",
    help="Of copies too, beside which a VM reads: bytes/s with commas, such as 512K,1M.",
)  # fmt: skip
@click.option(
    "--written", callback=lambda *given: _sizes(given[2]), default="",
    help="Also have VMs write so many bytes and boot anew, such as 0,16M.",
)  # fmt: skip
@click.option(
    "--vms", default="1", show_default=True, callback=lambda *given: _numbers(given[2]),
    help="How many these are, one a node, with commas.",
)  # fmt: skip
@_plot
@_json
def measure_whole(
    nodes: int,
    link_rate: str,
    size: int,
    rates: Sequence[int],
    written: Sequence[int],
    vms: Sequence[int],
    plot: Path | None,
    target: Path | None,
) -> None:
    """Have nodes copy whole images: what that takes, sends, and makes VMs wait."""
    if max(written, default=0) > size:
        raise click.BadParameter("must not be above --bytes", param_hint="--written")
    if max(vms) > nodes:
        raise click.BadParameter("must not be above --nodes", param_hint="--vms")
    also = whole.Also(rates, written, vms)

    def measure(progress: report.Progress) -> Iterator[dict[str, Any]]:
        return whole.measure(nodes, link_rate, size, also, progress)

    runs = _collected("whole", f"{nodes} nodes, {link_rate}", measure, whole.ratios, target)
    if plot is not None:
        picture.draw_copies(runs, plot)


@main.command("content")
@click.option(
    "--link-rate", default="100M", show_default=True,
    help="Of each node's link, both ways; none for no limit.",
)  # fmt: skip
@_plot
@_json
def measure_content(link_rate: str, plot: Path | None, target: Path | None) -> None:
    """Read and boot a new version where the earlier one is cached, a ring, and more."""
    rate = None if link_rate == "none" else link_rate

    def measure(progress: report.Progress) -> Iterator[dict[str, Any]]:
        return itertools.chain(sharing.measure(rate, progress), ring.measure(rate, progress))

    runs = _collected("content", "content", measure, _sharing, target)
    if plot is not None:
        picture.draw_sharing(runs, plot)


def _sharing(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {**sharing.ratios(runs), **ring.ratios(runs)}


@main.command("resume")
@click.option(
    "--nodes", type=click.IntRange(1, 16), default=4, show_default=True,
    help="On which clones are resumed; two more serve them.",
)  # fmt: skip
@click.option(
    "--clones", type=click.IntRange(1, 8), default=2, show_default=True, help="On each node."
)
@click.option(
    "--link-rate", default="100M", show_default=True,
    help="Of each node's link, both ways; none for no limit.",
)  # fmt: skip
@_plot
@_json
def measure_resume(
    nodes: int, clones: int, link_rate: str, plot: Path | None, target: Path | None
) -> None:
    """Resume VMs from a suspended image, and boot as many; replay policies of prefetch."""
    rate = None if link_rate == "none" else link_rate

    def measure(progress: report.Progress) -> Iterator[dict[str, Any]]:
        return resume.measure(nodes, clones, rate, progress)

    runs = _collected("resume", "resume", measure, resume.ratios, target)
    if plot is not None:
        picture.draw_resumes(runs, plot)


@main.command("hops")
@_json
def measure_hops(target: Path | None) -> None:
    """Read cold blocks through a chain of nodes, and the same without VirtMan."""
    try:
        with report.Progress("hops") as progress:
            run = hops.measure(progress)
    except LabError as err:
        raise click.ClickException(str(err)) from err
    _done(target, "hops", [run])


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

    def measure(progress: report.Progress) -> Iterator[dict[str, Any]]:
        return openstack.measure(modes, servers, rate, progress)

    _collected("openstack", "openstack", measure, openstack.ratios, target)


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


@main.command("results")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
def make_page(folder: Path) -> None:
    """Make a page of what is in FOLDER, and its pictures.

    That is what benches, virtman-simulate and virtman-model wrote there with --json.
    """
    try:
        click.echo(page.make(folder))
    except results.BadResults as err:
        raise click.ClickException(str(err)) from err


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


def _sizes(text: str) -> list[int]:
    return [0 if word == "0" else _bytes(word) for word in text.split(",") if text]


def _numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",") if word.isdecimal()]
    if len(numbers) != len(text.split(",")) or not all(1 <= one <= 64 for one in numbers):
        raise click.BadParameter(f"{text!r} is no number from 1 to 64, nor some with commas")
    return numbers


def _collected(
    bench: str,
    label: str,
    measure: Callable[[report.Progress], Iterator[dict[str, Any]]],
    ratios: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]],
    target: Path | None,
) -> list[dict[str, Any]]:
    """Return what a bench finds, and print it; the file has what is there already if it fails.

    :param label: of the progress that is shown
    :raises click.ClickException: if the lab fails
    """
    runs: list[dict[str, Any]] = []
    try:
        with report.Progress(label) as progress:
            for run in measure(progress):
                runs.append(run)
                _write(target, results.of(bench, runs, ratios(runs)))
    except LabError as err:
        raise click.ClickException(str(err)) from err
    report.show(results.of(bench, runs, ratios(runs)))
    return runs


def _done(
    target: Path | None,
    bench: str,
    runs: Sequence[Mapping[str, Any]],
    ratios: Mapping[str, Any] | None = None,
) -> None:
    """Print what a bench found, and write the file that is wanted."""
    found = results.of(bench, runs, ratios)
    report.show(found)
    _write(target, found)


def _write(target: Path | None, found: results.Results) -> None:
    if target is not None:
        found.save(target)


if __name__ == "__main__":
    main()
