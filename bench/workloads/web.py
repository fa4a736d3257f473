"""A web application, of whose seven parts a visitor uses some: of each, some pages."""

import importlib
import inspect
import io
import threading
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse

from bench.workloads.visitor import dice, think

DOCS = Path("/usr/share/doc/python3.11/html")


def manual(what: str) -> str:
    """Return a page of Python's manual, cleaned up."""
    import lxml.html

    tree = lxml.html.parse(str(DOCS / what)).getroot()
    return " ".join(tree.text_content().split())


def source(what: str) -> str:
    """Return the source of a module, in colours."""
    import pygments
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    text = inspect.getsource(importlib.import_module(what))
    return str(pygments.highlight(text, get_lexer_by_name("python"), HtmlFormatter()))


def article(what: str) -> str:
    """Return what somebody wrote in reStructuredText as HTML."""
    from docutils.core import publish_string

    text = (DOCS / "_sources" / what).read_text()[:4000]
    settings = {"report_level": 5, "halt_level": 5, "output_encoding": "unicode"}
    return str(publish_string(text, writer_name="html", settings_overrides=settings))


def chart(what: str) -> str:
    """Return a picture of numbers."""
    import matplotlib

    matplotlib.use({"line": "agg", "bar": "svg", "polar": "pdf"}[what])
    from matplotlib import pyplot

    axes = pyplot.figure().add_subplot(polar=what == "polar")
    draw = axes.bar if what == "bar" else axes.plot
    draw(range(20), [number**2 % 7 for number in range(20)])
    file = io.BytesIO()
    pyplot.savefig(file)
    return str(len(file.getvalue()))


def table(what: str) -> str:
    """Return numbers by groups, or by months."""
    import pandas

    days = pandas.date_range("2026-01-01", periods=300)
    frame = pandas.DataFrame({"day": days, "amount": range(300)})
    if what == "months":
        return str(frame.set_index("day").resample("M").sum().to_html())
    return str(frame.groupby(frame.amount % 7).mean(numeric_only=True).to_html())


def answer(what: str) -> str:
    """Return what comes out of a calculation."""
    numbers = [float(number) for number in range(400)]
    if what == "fit":
        from scipy import optimize

        return str(optimize.curve_fit(lambda x, a, b: a * x + b, numbers, numbers)[0])
    if what == "filter":
        from scipy import signal

        return str(signal.lfilter(*signal.butter(3, 0.1), numbers)[-1])
    from scipy import stats

    return str(stats.ttest_ind(numbers, numbers[:100]))


def way(what: str) -> str:
    """Return how to get from one place to another."""
    import networkx

    graph = networkx.gnp_random_graph(200, 0.05, seed=1)
    if what == "shortest":
        return str(networkx.shortest_path(graph, 0, 199))
    return str(networkx.pagerank(graph)[0])


PARTS = {
    "manual": sorted(f"library/{file.name}" for file in (DOCS / "library").glob("*.html")),
    "source": ["argparse", "ast", "email", "http.client", "logging", "typing", "zipfile"],
    "article": sorted(f"howto/{one.name}" for one in (DOCS / "_sources/howto").glob("*.txt")),
    "chart": ["line", "bar", "polar"],
    "table": ["months", "groups"],
    "answer": ["fit", "filter", "test"],
    "way": ["shortest", "rank"],
}


def application(environment: dict[str, Any], respond: StartResponse) -> list[bytes]:
    """Answer a request: the path is a part, the query what of it is wanted."""
    part = globals()[environment["PATH_INFO"].strip("/")]
    respond("200 OK", [("Content-Type", "text/html")])
    return [part(urllib.parse.unquote(environment["QUERY_STRING"])).encode()]


class Silent(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, *words: object) -> None:
        """Write nothing."""


server = make_server("127.0.0.1", 8080, application, handler_class=Silent)
threading.Thread(target=server.serve_forever, daemon=True).start()
visited = ["manual", *dice.sample(sorted(set(PARTS) - {"manual"}), 3)]
for part in visited:
    for page in dice.sample(PARTS[part], min(len(PARTS[part]), dice.randint(1, 3))):
        think(8, 20)
        url = f"http://127.0.0.1:8080/{part}?{urllib.parse.quote(page)}"
        urllib.request.urlopen(url).read()
