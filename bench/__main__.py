"""The measurements as commands: ``python -m bench volt``."""

import json
from pathlib import Path

import click

from bench import report, volt


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
@click.option("--json", "target", type=click.Path(path_type=Path), help="Also write a file.")
def measure_volt(hosts: int, databases: tuple[str, ...], target: Path | None) -> None:
    """Let many hosts join one image, report and die."""
    runs = []
    for database in databases:
        with report.Progress(database) as progress:
            runs.append(volt.measure(database, hosts, progress))
    report.show(runs)
    if target is not None:
        target.write_text(json.dumps({"runs": runs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
