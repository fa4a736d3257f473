"""flashcache verbs, through its command line and its sysctls."""

from __future__ import annotations

from pathlib import Path

from virtman.privileged import context
from virtman.privileged.command import run

_SYSCTLS = Path("/proc/sys/dev/flashcache")
_LRU = "1"


@context.entrypoint
def create(name: str, cache: str, disk: str) -> None:
    """Make device ``name``, which shows ``disk`` and keeps on ``cache`` what was read of it.

    It is removed like any device-mapper device.
    """
    # -f: else it asks at the terminal whether a cache may be larger than its disk
    run("flashcache_create", "-f", "-p", "around", "-b", "4k", name, cache, disk)


@context.entrypoint
def keep_latest(cache: str, disk: str) -> None:
    """Let it replace what was not read for the longest time, not what it read first."""
    pair = f"{Path(cache).name}+{Path(disk).name}"
    (_SYSCTLS / pair / "reclaim_policy").write_text(_LRU)
