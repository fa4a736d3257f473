"""How an image's trees look as text."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any


def draw(trees: Mapping[str, Any]) -> str:
    """Return one text tree per stripe from the answer of GET /v1/images/{image}/trees.

    An asterisk marks hosts that may feed others in that tree::

        stripe 0
        source
        └─ node1* (ready)
           ├─ node2 (ready)
           └─ node3* (joining)
    """
    return "\n\n".join("\n".join(_lines(tree)) for tree in trees["trees"])


def _lines(tree: Mapping[str, Any]) -> Iterator[str]:
    children: dict[str | None, list[Mapping[str, Any]]] = defaultdict(list)
    for node in tree["nodes"]:
        children[node["parent"]].append(node)
    yield f"stripe {tree['stripe']}"
    yield "source"
    # A chain may be deeper than Python recurses, hence an explicit stack.
    pending = [(node, "", node is children[None][-1]) for node in reversed(children[None])]
    while pending:
        node, indent, is_last = pending.pop()
        mark = "*" if node["inner"] else ""
        yield f"{indent}{'└─' if is_last else '├─'} {node['host']}{mark} ({node['state']})"
        below = indent + ("   " if is_last else "│  ")
        fed = children[node["host"]]
        pending += [(child, below, child is fed[-1]) for child in reversed(fed)]
