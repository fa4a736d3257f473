"""A disk no faster than volumes of clouds are: the bed's own are memory of the machine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lab.node import Node

BYTES_PER_S, READS_PER_S = 125_000_000, 3_000
"""What AWS gives a volume of type gp3, and others give about, by default."""

_GROUPS = "/sys/fs/cgroup"
_GROUP = f"{_GROUPS}/volume"
_INSIDE = f'echo $$ > {_GROUP}/cgroup.procs && exec "$@"'


@contextmanager
def limited(node: Node, file: str) -> Iterator[Sequence[str]]:
    """Limit reads of a file's disk; yield what the command begins with that they are of."""
    device = node.run(["findmnt", "-n", "-o", "MAJ:MIN", "-T", file]).stdout.strip()
    node.run(["mount", "-t", "cgroup2", "none", _GROUPS])
    try:
        node.run(["tee", f"{_GROUPS}/cgroup.subtree_control"], input="+io")
        node.run(["mkdir", _GROUP])
        limits = f"{device} rbps={BYTES_PER_S} riops={READS_PER_S}"
        node.run(["tee", f"{_GROUP}/io.max"], input=limits)
        yield ["sh", "-c", _INSIDE, "sh"]
        node.run(["rmdir", _GROUP])
    finally:
        node.run(["umount", _GROUPS])
