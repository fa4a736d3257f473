"""Reads by fio, and what it says of them."""

import json
from collections.abc import Sequence
from typing import Any

from lab.node import Node


def read(
    node: Node, *words: str, within: Sequence[str] = (), timeout: float = 300
) -> dict[str, Any]:
    """Run jobs of direct, asynchronous reads on a node; return fio's own report.

    :param words: options of all jobs first, then each job from its ``--name`` on
    :param within: what the command begins with
    :param timeout: seconds
    """
    options = ["--readonly", "--direct=1", "--ioengine=libaio", "--output-format=json"]
    done = node.run(
        [*within, "fio", *options, *words],
        cwd="/tmp",  # noqa: S108  # fio leaves what the command printed
        timeout=timeout,
    )
    report: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return report
