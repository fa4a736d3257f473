"""A database, which somebody asks different questions: some read a table, some a few rows."""

import sqlite3

from bench.workloads.visitor import dice, think

base = sqlite3.connect("file:/srv/shop.db?immutable=1", uri=True)


def events() -> str:
    """Read the events of a region."""
    return f"SELECT kind, count(*) FROM event{dice.randrange(12)} GROUP BY kind"  # noqa: S608


def month() -> str:
    """Sum up a month's sales."""
    day = 30 * dice.randrange(12)
    return f"SELECT sum(amount) FROM sale WHERE day BETWEEN {day} AND {day + 30}"  # noqa: S608


def region() -> str:
    """Read the customers of a region."""
    number = 5000 * dice.randrange(12)
    return f"SELECT max(note) FROM customer WHERE id BETWEEN {number} AND {number + 4999}"  # noqa: S608


def history() -> str:
    """Look up what a few customers bought."""
    number = dice.randrange(59_990)
    return f"SELECT * FROM sale WHERE customer BETWEEN {number} AND {number + 5}"  # noqa: S608


def search() -> str:
    """Look for words in articles."""
    (row,) = base.execute(f"SELECT title FROM article WHERE rowid = {dice.randint(1, 6000)}")  # noqa: S608
    return f"SELECT title FROM article WHERE article MATCH '{row[0].split()[0]}' ORDER BY rank"  # noqa: S608


def names() -> str:
    """Count customers by the first letter of their names."""
    return "SELECT substr(name, 1, 1), count(*) FROM customer GROUP BY 1"


for question in [names, *dice.choices((events, month, region, history, search), k=8)]:
    base.execute(question()).fetchall()
    think(6, 20)
