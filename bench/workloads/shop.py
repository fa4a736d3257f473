"""Makes the database that ``database.py`` asks, in the file that is named; always the same."""

import random
import sqlite3
import sys

REGIONS = 12
CUSTOMERS, ORDERS, EVENTS, ARTICLES = 60_000, 250_000, 40_000, 6_000

dice = random.Random(2026)  # noqa: S311 - no secret
letters = "abcdefghijklmnopqrstuvwxyz"
words = ["".join(dice.choices(letters, k=dice.randint(3, 9))) for _ in range(8000)]


def text(count: int) -> str:
    """Return words, some of which are frequent."""
    return " ".join(words[int(len(words) * dice.random() ** 3)] for _ in range(count))


base = sqlite3.connect(sys.argv[1])
base.executescript(
    """
    PRAGMA journal_mode = OFF;
    CREATE TABLE customer (id INTEGER PRIMARY KEY, region INT, name TEXT, note TEXT);
    CREATE TABLE sale (id INTEGER PRIMARY KEY, customer INT, day INT, amount REAL, note TEXT);
    CREATE VIRTUAL TABLE article USING fts5 (title, body);
    """
)
base.executemany(
    "INSERT INTO customer VALUES (?, ?, ?, ?)",
    ((number, number * REGIONS // CUSTOMERS, text(2), text(10)) for number in range(CUSTOMERS)),
)
base.executemany(
    "INSERT INTO sale VALUES (?, ?, ?, ?, ?)",
    (
        (number, dice.randrange(CUSTOMERS), number * 365 // ORDERS, dice.uniform(1, 99), text(5))
        for number in range(ORDERS)
    ),
)
base.executemany(
    "INSERT INTO article VALUES (?, ?)", ((text(4), text(200)) for _ in range(ARTICLES))
)
for region in range(REGIONS):
    base.execute(f"CREATE TABLE event{region} (day INT, kind TEXT, text TEXT)")
    base.executemany(
        f"INSERT INTO event{region} VALUES (?, ?, ?)",  # noqa: S608 - a number of ours
        ((number * 365 // EVENTS, text(1), text(8)) for number in range(EVENTS)),
    )
base.executescript(
    """
    CREATE INDEX sale_customer ON sale (customer);
    CREATE INDEX sale_day ON sale (day);
    CREATE INDEX customer_name ON customer (name);
    """
)
base.commit()
