"""What a person sees of a run: progress while it works, then what came of it."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from volt.model.drawing import draw

_BAR = 22


@dataclass(frozen=True)
class Check:
    """Something that must hold, and whether it did."""

    name: str
    ok: bool
    detail: str = ""


class Progress:
    """Says on standard error what is being done; a terminal also sees it move."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._vms: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"[dim]{time.monotonic() - self._begin:6.1f} s[/dim]  {text}")

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show what is being done for as long as the block takes."""
        self.say(what)
        with self.console.status(what) as status:
            self._status = status
            yield

    def vm(self, name: str, node: str, state: str) -> None:
        """Show what became of a VM."""
        with self._lock:
            self._vms[name] = state
            ready = sum(state.startswith("ready") for state in self._vms.values())
        self.say(f"{name} on {node}: {state}")
        self._status.update(f"booting: {ready} of {len(self._vms)} VMs ready")


def print_result(console: Console, result: Mapping[str, Any]) -> None:
    """Print the timeline, the trees, the bytes and the checks."""
    if result["vms"]:
        console.print(_timeline(result))
    if result["trees"]:
        console.print("\n[bold]Attach trees[/bold] (* feeds others)\n")
        console.print(draw(result["trees"]), markup=False)
    if result["boot_read_bytes"]:
        sent, read = result["source_sent_bytes"], result["boot_read_bytes"]
        console.print(
            f"\nThe source sent {_mb(sent)}; one boot reads {_mb(read)}; "
            f"{len(result['vms'])} VMs booted: {sent / read:.2f}x one boot's reads."
        )
        ahead = [node["ahead"] for node in result["nodes"] if node["ahead"]]
        fetched, used = (sum(one[what] for one in ahead) for what in ("fetched", "used"))
        console.print(
            f"The nodes fetched {_mb(fetched)} ahead of VMs, which read {_mb(used)} of that.\n"
        )
    for check in result["checks"]:
        mark = "[green]ok    [/green]" if check["ok"] else "[red]FAILED[/red]"
        detail = f" ({check['detail']})" if check["detail"] else ""
        console.print(mark, check["name"] + detail)
    console.print("[bold green]All is well.[/bold green]" if result["ok"] else
                  "[bold red]Something is wrong: see above.[/bold red]")  # fmt: skip


def _timeline(result: Mapping[str, Any]) -> Table:
    """Return a table with a bar a VM: attaching, then booting, first with help and then without."""
    nodes = {node["name"]: node for node in result["nodes"]}
    longest = max(vm["ready_s"] for vm in result["vms"]) or 1.0
    table = Table("VM", "node", "depth", "attached", "ready", "ahead", "time")
    table.caption = "▒ attach  ▓ boot, its reads fetched ahead  █ boot"
    for vm in sorted(result["vms"], key=lambda vm: (vm["node"], vm["name"])):
        # a run that ended early knows nothing of its nodes
        node = nodes.get(vm["node"], {"depth": [], "attach_s": 0.0, "ahead": None})
        ahead = node["ahead"] or {"fetched": 0, "seconds": 0.0}
        # a node begins when its parents are connected, which is when its first VM is attached
        until = min(node["attach_s"] + ahead["seconds"], vm["ready_s"])
        ends = {"▒": vm["attach_s"], "▓": until, "█": vm["ready_s"]}
        table.add_row(
            vm["name"],
            vm["node"],
            "/".join(map(str, node["depth"])),
            f"{vm['attach_s']:.1f} s",
            f"{vm['ready_s']:.1f} s" if vm["ok"] else "failed",
            _mb(ahead["fetched"]),
            _bar({mark: end / longest for mark, end in ends.items()}),
        )
    return table


def _bar(ends: Mapping[str, float]) -> str:
    """Return a bar of which each mark goes on until its share of the longest one."""
    bar = ""
    for mark, end in ends.items():
        bar += mark * (round(_BAR * end) - len(bar))
    return bar


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
