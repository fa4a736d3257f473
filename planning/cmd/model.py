"""The ``virtman-model`` command: what links and waits make of a boot, by equations."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import click

from planning import drawing, measured, playback
from planning.cmd import options, table
from planning.cmd.size import size
from planning.designs import DESIGNS, Cloud
from planning.distribution import Network
from planning.errors import Invalid
from planning.playback import Playback
from planning.trees import Trees
from virtman.errors import ProfileInvalid
from virtman.model.profile_format import decode


@click.group(context_settings=options.SETTINGS)
@options.version_option("virtman-model")
def main() -> None:
    """Tell how long boots at once take, by equations: no host is touched.

    A rate is in bits a second, such as 25M or 10G; a size in bytes, such as 64K or 2GiB; a time
    in seconds, such as 20 or 0.5ms.
    """


main.add_command(size)


def _design(word: str) -> str:
    if word not in DESIGNS:
        raise click.BadParameter(f"no such design: {word}; there are {', '.join(DESIGNS)}")
    return word


_OPTIONS = (
    click.option(
        "--profile", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        help="What boots read and when, as written by virtman profile export. Without it, a boot "
        "reads a piece after each of as many equal pauses.",
    ),
    click.option(
        "--working-set", type=options.size, metavar="SIZE",
        help="What a boot reads, without a profile.  [default: 80M]",
    ),
    click.option(
        "--boot-time", type=options.seconds, metavar="SECONDS",
        help="How long a boot takes if nothing waits.  [default: 20, or what the profile has]",
    ),
    click.option(
        "--link-rate", "link_rates", type=options.several(options.rate), metavar="RATE,...",
        default="1G", show_default=True, help="Of each link, each way.",
    ),
    click.option(
        "--piece", type=options.size, metavar="SIZE", default="64K", show_default=True,
        help="What is asked for at once; the VMTorrent paper has 16K.",
    ),
    click.option(
        "--round-trip", type=options.seconds, metavar="SECONDS", default="0.1ms",
        show_default=True, help="Of the network.",
    ),
    click.option(
        "--service", type=options.seconds, metavar="SECONDS", default="0.5ms", show_default=True,
        help="What a server or a peer needs before it answers.",
    ),
    click.option(
        "--attach", type=options.seconds, metavar="SECONDS",
        default=str(measured.BED.attach_s), show_default=True,
        help="Until a host of a tree has its devices.",
    ),
    click.option("--stripes", type=int, default=2, show_default=True, help="Trees of an image."),
    click.option(
        "--fanout", type=int, default=2, show_default=True, help="Hosts that a host feeds."
    ),
    click.option(
        "--window", type=int, default=2, show_default=True,
        help="Pieces that a host fetches ahead at once, in each stripe.",
    ),
    click.option(
        "--designs", type=options.several(_design), metavar="DESIGN,...",
        default=",".join(DESIGNS), show_default=True, help="Ways to boot.",
    ),
    options.json_file,
    options.csv_file,
    options.plot_file,
)  # fmt: skip


def _model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return reduce(lambda wrapped, option: option(wrapped), reversed(_OPTIONS), command)


@dataclass(frozen=True)
class _Asked:
    """What the command line says, read and checked."""

    ideal: Playback
    clouds: tuple[Cloud, ...]
    designs: tuple[str, ...]

    @classmethod
    def read(cls, given: dict[str, Any]) -> _Asked:
        trees = Trees(given["stripes"], given["fanout"], given["window"])
        waits = given["round_trip"], given["service"], given["piece"]
        clouds = [
            Cloud(Network(rate, *waits), trees, given["attach"]) for rate in given["link_rates"]
        ]
        ideal = _ideal(
            **{name: given[name] for name in ("profile", "working_set", "boot_time", "piece")}
        )
        return cls(ideal, tuple(clouds), given["designs"])

    def boots(self, hosts: Iterable[int]) -> list[_Boot]:
        """Return a boot for each link rate, design and number of hosts."""
        return [
            _Boot(name, cloud, count, DESIGNS[name](self.ideal, cloud, count))
            for cloud, name, count in itertools.product(self.clouds, self.designs, hosts)
        ]


@dataclass(frozen=True)
class _Boot:
    design: str
    cloud: Cloud
    hosts: int
    curve: Playback

    def over(self, ideal: Playback) -> float:
        """Return how many times as long it takes as without waits."""
        return self.curve.end / ideal.end

    @property
    def figures(self) -> dict[str, Any]:
        link = self.cloud.network.link
        return {"design": self.design, "link_bits_s": link * 8, "hosts": self.hosts}


@main.command("times")
@click.option(
    "--hosts", type=options.several(options.hosts), metavar="N,...",
    default="1,2,4,8,16,32,64,100", show_default=True, help="That boot at once.",
)  # fmt: skip
@_model_options
def show_times(hosts: tuple[int, ...], **given: Any) -> None:
    """Tell how long a boot takes, by design and number of hosts.

    Of a server and a swarm it is an average host's, of a tree the farthest one's.
    """
    with options.reported():
        asked = _Asked.read(given)
        ideal = asked.ideal
        if not ideal.end:
            raise Invalid("a boot time of 0: nothing can be told over it")
        boots = asked.boots(hosts)
        click.echo(f"seconds until the end of a boot, which takes {ideal.end:.1f} s without waits")
        _show(boots, asked.clouds, hosts)
        found = [
            {**one.figures, "boot_s": one.curve.end, "over_ideal": one.over(ideal)} for one in boots
        ]
        options.write_json(
            given["json_file"],
            "times",
            {"ideal_s": ideal.end, "working_set_bytes": ideal.total, "times": found},
        )
        options.write_csv(given["csv_file"], list(found[0]), [list(row.values()) for row in found])
        if given["plot_file"] is not None:
            lines: dict[str, list[tuple[int, float]]] = {}
            for one in boots:
                lines.setdefault(_name(one, asked.clouds), []).append((one.hosts, one.over(ideal)))
            drawing.draw_times(lines, "boot time", given["plot_file"])


@main.command("curves")
@click.option(
    "--hosts", type=options.hosts, metavar="N", default="1", show_default=True,
    help="That boot at once.",
)  # fmt: skip
@_model_options
def show_curves(hosts: int, **given: Any) -> None:
    """Tell what a VM has read by when, by design and link rate."""
    with options.reported():
        asked = _Asked.read(given)
        boots = asked.boots([hosts])
        click.echo(f"seconds until the end of a boot of {hosts} hosts")
        _show(boots, asked.clouds, [hosts])
        options.write_json(
            given["json_file"],
            "curves",
            {
                "ideal": _points(asked.ideal),
                "curves": [{**one.figures, **_points(one.curve)} for one in boots],
            },
        )
        options.write_csv(
            given["csv_file"],
            ["design", "link_bits_s", "hosts", "seconds", "bytes"],
            [[*one.figures.values(), *point] for one in boots for point in _pairs(one.curve)],
        )
        if given["plot_file"] is not None:
            curves = {_name(one, asked.clouds): one.curve for one in boots}
            title = f"{hosts} hosts" if hosts > 1 else "one host"
            drawing.draw_curves(curves, asked.ideal, title, given["plot_file"])


def _ideal(
    profile: Path | None, working_set: float | None, boot_time: float | None, piece: float
) -> Playback:
    if profile is None:
        amount = options.size("80M") if working_set is None else working_set
        return playback.regular(amount, 20.0 if boot_time is None else boot_time, piece)
    if working_set is not None:
        raise Invalid("a profile says what boots read: leave out --working-set")
    try:
        ideal = playback.recorded(decode(profile.read_bytes()))
    except ProfileInvalid as err:
        raise Invalid(f"{profile}: {err}") from err
    return ideal if boot_time is None else ideal.stretched(boot_time)


def _show(boots: Sequence[_Boot], clouds: Sequence[Cloud], hosts: Sequence[int]) -> None:
    names = list(dict.fromkeys(_name(one, clouds) for one in boots))
    ends = {(_name(one, clouds), one.hosts): one.curve.end for one in boots}
    rows = [[name, *(f"{ends[name, count]:.1f}" for count in hosts)] for name in names]
    table.show(["hosts", *map(str, hosts)], rows)


def _name(boot: _Boot, clouds: Sequence[Cloud]) -> str:
    if len(clouds) == 1:
        return boot.design
    return f"{boot.design}, {boot.cloud.network.link * 8 / 1e6:g} Mbit/s"


def _points(curve: Playback) -> dict[str, list[float]]:
    return {"seconds": list(curve.seconds), "bytes": list(curve.amounts)}


def _pairs(curve: Playback) -> list[tuple[float, float]]:
    return list(zip(curve.seconds, curve.amounts, strict=True))


if __name__ == "__main__":
    main()
