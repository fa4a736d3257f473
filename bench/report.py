"""What a person sees of a measurement."""

from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from bench import tables
from bench.results import Results
from planning.replay.traces import Trace


class Progress:
    """Bars on standard error: one for each step of a run."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bars = Bars(
            TextColumn("{task.description:28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    def step(self, what: str, total: int) -> "Step":
        """Begin a step."""
        return Step(self._bars, f"{self._title}: {what}", total)


class Step:
    """One bar."""

    def __init__(self, bars: Bars, what: str, total: int) -> None:
        self._bars = bars
        self._task = bars.add_task(what, total=total)

    def advance(self, by: int = 1) -> None:
        """Say that so many more are done."""
        self._bars.advance(self._task, by)


def show(results: Results) -> None:
    """Print the tables of results, and what went wrong."""
    console = Console()
    for one in tables.tables(results):
        table = Table(*one.titles)
        for line in one.lines:
            table.add_row(*line)
        console.print(table)
        for fault in one.wrong:
            console.print(f"[red]{fault}[/red]")


def show_traces(traces: Sequence[Trace]) -> None:
    """Print a table of workloads, one a row."""
    table = Table("workload", "runs", "a run takes", "it reads", "in any run")
    for one in traces:
        mib = [len(run) * one.piece / 2**20 for run in (*one.runs, set[int]().union(*one.runs))]
        ends = [max(run.values()) for run in one.runs]
        table.add_row(
            one.workload,
            f"{len(one.runs)}",
            f"{min(ends):.0f}-{max(ends):.0f} s",
            f"{min(mib):.1f}-{max(mib[:-1]):.1f} MiB",
            f"{mib[-1]:.1f} MiB",
        )
    Console().print(table)
