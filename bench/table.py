"""A table of figures, before it is printed or put on a page."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """A line of titles, and lines of as many cells.

    :ivar wrong: what went wrong in these runs
    """

    titles: list[str]
    lines: list[list[str]]
    wrong: list[str] = field(default_factory=list)
