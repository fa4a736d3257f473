"""One page of all results, for Sphinx or docutils, and its pictures."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench import figures, plot, results, tables
from bench.results import BadResults, Results
from bench.table import Table
from planning.errors import PlanningError

PAGE = "results.rst"
_PICTURES = {
    "storm": plot.draw,
    "whole": plot.draw_copies,
    "content": plot.draw_sharing,
    "resume": plot.draw_resumes,
    "times": figures.draw_times,
    "curves": figures.draw_curves,
}


def make(folder: Path) -> Path:
    """Write the page of all results in a folder into it, and return where; raises BadResults."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise BadResults(f"there is no result in {folder}: have benches write some with --json")
    parts = [_part(file) for file in files]
    page = folder / PAGE
    page.write_text("\n".join([*_title("Results of benches, simulator and model", "="), *parts]))
    return page


def _part(file: Path) -> str:
    try:
        found = results.load(file)
        shown = tables.tables(found)
        picture = _picture(found, file)
    except BadResults as err:
        raise BadResults(f"{file.name}: {err}") from err
    except KeyError as err:
        raise BadResults(f"{file.name}: the figure {err} is missing in a run") from err
    except (TypeError, ValueError, IndexError, AttributeError, PlanningError) as err:
        raise BadResults(
            f"{file.name}: its runs are not those of bench {found.bench}: {err}"
        ) from err
    return "\n".join([*_title(file.stem, "-"), *_about(found), *_rows(shown), *picture])


def _about(found: Results) -> Iterator[str]:
    if found.origin is None:
        yield from ("The file does not tell where its figures are from.", "")
        return
    machine = found.origin.machine
    yield from (".. code-block:: console", "", f"   $ {found.origin.command}", "")
    yield (
        f"Commit {found.origin.commit or 'not known'}; {machine.processors} processors "
        f"({machine.processor}), {machine.memory_bytes / 2**30:.1f} GiB of memory, "
        f"Linux {machine.kernel}."
    )
    yield ""


def _rows(shown: Sequence[Table]) -> Iterator[str]:
    for table in shown:
        yield from (".. list-table::", "   :header-rows: 1", "")
        for line in (table.titles, *table.lines):
            yield from _line(line)
        yield ""
        if table.wrong:
            yield from ("What went wrong:", "", *(f"- {_literal(one)}" for one in table.wrong), "")


def _line(cells: Iterable[str]) -> Iterator[str]:
    """Return a line of a table; what stands below another is set in, as in a terminal."""
    for number, cell in enumerate(cells):
        inset = "— " if cell.startswith("  ") else ""
        yield f"   {'* -' if number == 0 else '  -'} {inset}{_escaped(cell.strip())}".rstrip()


def _picture(found: Results, file: Path) -> list[str]:
    """Draw what there is a picture of; return the lines that show it."""
    draw = _PICTURES.get(found.bench)
    if draw is None:
        return []
    picture = file.with_suffix(".svg")
    draw(found.runs, picture)
    return [f".. image:: {picture.name}", "   :alt: The same as a picture.", ""]


def _title(text: str, line: str) -> list[str]:
    return [text, line * len(text), ""]


def _escaped(text: str) -> str:
    """Return text that means itself."""
    return "".join(f"\\{one}" if one in "\\*`|_" else one for one in text)


def _literal(text: str) -> str:
    return _escaped(" ".join(text.split()))
