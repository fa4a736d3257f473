"""What the figures of each bench look like as tables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import figures
from bench.results import BadResults, Results, by_rate
from bench.table import Table

VOLT = (
    ("workers", "workers", "{}"),
    ("hosts", "hosts", "{:,}"),
    ("images", "images", "{}"),
    ("  that each host joins", "places", "{}"),
    ("racks", "racks", "{}"),
    ("pgbench, transactions a second, 64 clients", "pgbench_per_s", "{:,.0f}"),
    ("  one client", "pgbench_alone_per_s", "{:,.0f}"),
    ("joins a second", "joins_per_s", "{:,.0f}"),
    ("join, p99", "join_p99_ms", "{:.0f} ms"),
    ("cores for joins: of Volt", "join_cores_volt", "{:.2f}"),
    ("  of the database", "join_cores_database", "{:.2f}"),
    ("  of the bench", "join_cores_bench", "{:.2f}"),
    ("bytes that a host takes in the database", "database_bytes_per_host", "{:,.0f}"),
    ("heartbeats a second", "heartbeats_per_s", "{:,.0f}"),
    ("heartbeat, p99", "heartbeat_p99_ms", "{:.0f} ms"),
    ("cores for heartbeats", "heartbeat_cores", "{:.2f}"),
    ("  of Volt", "heartbeat_cores_volt", "{:.2f}"),
    ("  of the database", "heartbeat_cores_database", "{:.2f}"),
    ("peak resident memory of a worker", "rss_bytes_per_worker", "{:,} bytes"),
    ("hosts that fell silent", "silent", "{:,}"),
    ("out of the trees once due after", "expire_1000_s", "{:.1f} s"),
)
CHURN = (
    ("hosts", "hosts", "{:,}"),
    ("images", "images", "{}"),
    ("workers", "workers", "{}"),
    ("requests a second", "requests_per_s", "{:,.0f}"),
    ("requests that Volt did not live to answer", "requests_lost", "{:,}"),
    ("hosts that died", "hosts_died", "{:,}"),
    ("workers killed", "workers_killed", "{}"),
    ("all of Volt killed", "volts_killed", "{}"),
    ("databases killed", "databases_killed", "{}"),
    ("cores of Volt", "cores_volt", "{:.2f}"),
    ("  of the database", "cores_database", "{:.2f}"),
    ("memory of the largest worker, half way", "rss_bytes_early", "{:,} bytes"),
    ("  in the end", "rss_bytes_late", "{:,} bytes"),
)
FANOUT = (
    ("nodes", "nodes", "{}"),
    ("what links could do at best", "limit_s", "{:.2f} s"),
    ("the last node had all after", "last_s", "{:.2f} s"),
    ("  over the best", "last_over_limit", "{:.2f}"),
    ("images that the source sent", "source_images", "{:.2f}"),
    ("images that the busiest node sent", "busiest_node_images", "{:.2f}"),
)
STORM = (
    ("nodes", "nodes", "{}"),
    ("what links and guests could do at best", "limit_s", "{:.1f} s"),
    ("  if each read waits for all before it", "floor_s", "{:.1f} s"),
    ("all have their devices", "attached_s", "{:.1f} s"),
    ("first VM ready", "first_s", "{:.1f} s"),
    ("median", "median_s", "{:.1f} s"),
    ("last", "last_s", "{:.1f} s"),
    ("  over the best", "last_over_limit", "{:.2f}"),
    ("  the same from the first device on", "reads_over_limit", "{:.2f}"),
    ("last, when all was warm", "warm_last_s", "{:.1f} s"),
    ("working sets that the source sent", "source_images", "{:.2f}"),
    ("working sets that the busiest node sent", "busiest_node_images", "{:.2f}"),
    ("fetched ahead, over what VMs read of it", "fetch_ratio", "{:.2f}"),
    ("reads that waited", "stalls", "{:,}"),
    ("  median", "stall_p50_ms", "{:.0f} ms"),
    ("  slowest 1 %", "stall_p99_ms", "{:.0f} ms"),
    ("  longest", "stall_max_ms", "{:.0f} ms"),
    ("processors that the machine kept busy", "processors_busy", "{:.2f}"),
)

AGENT = (
    ("first VM of an image", "first", "seconds", "{:.2f} s"),
    ("  processes", "first", "processes", "{}"),
    ("  logins", "first", "logins", "{}"),
    ("one more VM", "second", "seconds", "{:.3f} s"),
    ("  over the same with bare tools", "second", "over_bare", "{:.2f}"),
    ("  processes", "second", "processes", "{:.1f}"),
    ("  processes of the bare tools", "second", "bare_processes", "{:.1f}"),
    ("images", "memory", "images", "{}"),
    ("VMs", "memory", "vms", "{}"),
    ("resident memory of the agent's two processes", "memory", "rss", "{:,} bytes"),
    ("  shared pages counted once", "memory", "pss", "{:,} bytes"),
)

IMAGE = (
    ("dm devices an image", "dm", "{:.1f}"),
    ("loop devices an image", "loop", "{:.1f}"),
    ("LUNs an image", "lun", "{:.1f}"),
    ("kernel memory an image", "kernel_bytes", "{:,.0f} bytes"),
    ("memory of the agent", "agent_pss", "{:,} bytes"),
)
HOPS = (
    ("in order at depth 2, a second", "bytes_per_s", "{:,.0f} bytes"),
    ("processor for 100 MB at the parent", "parent_cpu_s_per_100mb", "{:.2f} s"),
    ("processor for 100 MB at the child", "child_cpu_s_per_100mb", "{:.2f} s"),
)

OPENSTACK = (
    ("servers", "servers", "{}"),
    ("the last one was ACTIVE after", "last_active_s", "{:.0f} s"),
    ("the last guest was ready after", "last_ready_s", "{:.0f} s"),
    ("requests to Cinder", "cinder_calls", "{}"),
    ("  to Glance", "glance_calls", "{}"),
    ("  to Placement", "placement_calls", "{}"),
    ("downloads of the image", "downloads", "{}"),
    ("volumes made", "volumes", "{}"),
    ("sent by the storage node", "storage_sent_bytes", "{:,} bytes"),
)
WHOLE = (
    (
        "whole image to all at once, the last over the limit",
        "all_at_once_last_over_limit",
        "{:.2f}",
    ),
    ("images that the source sent", "source_over_image", "{:.2f}"),
    ("  with starts one after the other", "source_over_image_staggered", "{:.2f}"),
    ("reads of a VM beside a capped copy over none, p95", "p95_capped_over_none", "{:.2f}"),
    ("  with no cap", "p95_uncapped_over_none", "{:.2f}"),
    ("longest read of a VM at letting go", "pause_own_s", "{:.2f} s"),
    ("  of a VM on a node below", "pause_others_s", "{:.2f} s"),
    ("reads from a whole image over those of the disk", "reads_over_disk", "{:.2f}"),
    ("  of a disk as fast as a cloud's volume", "reads_over_volume", "{:.2f}"),
    ("a commit until storage has it over size / link", "commit_over_link", "{:.2f}"),
    ("bytes of a checkpoint after 1 % changed over all", "checkpoint_over_all", "{:.3f}"),
    ("boot of a committed VM over the first", "second_boot_over_first", "{:.2f}"),
)
SHARING = (
    (
        "a new version, updated in place: received over new blocks",
        "inplace_bytes_over_delta",
        "{:.2f}",
    ),
    ("  made anew from packages", "rebuilt_bytes_over_delta", "{:.2f}"),
    ("its boot where the old one is cached, over its second", "boot_v2_on_v1_over_v2", "{:.2f}"),
    ("cache that images of one base take, over unique bytes", "cache_over_unique", "{:.2f}"),
    ("a table of 10,000 runs is loaded in", "table_load_s", "{:.2f} s"),
    ("images listed with such tables, over without", "list_over_without", "{:.2f}"),
)
RESUMED = (
    ("last clone answers, over the last of as many boots", "last_answer_over_boot", "{:.2f}"),
    ("first clone of a node: received over touched", "received_over_touched", "{:.2f}"),
    ("sent by sources to all, over what any clone touched", "source_over_union", "{:.2f}"),
    ("second clone of a node: received over the first", "second_clone_over_first", "{:.3f}"),
    ("one more clone on an idle node runs after", "running_s", "{:.2f} s"),
)

CLUSTERS = (
    ("boot", "boot_s"),
    ("all of the image there", "fetch_s"),
    ("commit", "commit_s"),
    ("boot anew", "again_s"),
    ("all of the layers there", "fetch_own_s"),
)

_USUAL = ("no copy", "capped", "uncapped")
_COLUMNS = 4  # of runs side by side: for more a terminal has no room


def tables(results: Results) -> list[Table]:
    """Return what there is to see of results; raises BadResults."""
    if results.bench not in _OF:
        raise BadResults(f"there is no bench {results.bench!r}, but {', '.join(sorted(_OF))}")
    return _OF[results.bench](results)


def _volt(results: Results) -> list[Table]:
    """Return a table of all runs, one a column."""
    runs = results.runs
    table = _columns("database", VOLT, runs)
    for number in runs[0]["rows_touched"]:
        title = f"rows touched by a join at {int(number):,} hosts"
        cells = (_cell(run["rows_touched"][number], "{:.0f}") for run in runs)
        table.lines.append([title, *cells])
    table.wrong.extend(f"{run['database']}: {fault}" for run in runs for fault in run["faults"])
    return [table]


def _churn(results: Results) -> list[Table]:
    """Return a table of figures and the requests."""
    (run,) = results.runs
    lines = [[title, _cell(run[name], form)] for title, name, form in CHURN]
    lines += [[f"  {request}", f"{number:,}"] for request, number in run["requests"].items()]
    return [Table(["", "churn"], lines, [*run["complaints"], *run["faults"]])]


def _fanout(results: Results) -> list[Table]:
    """Return a table of all runs, one a column."""
    return [_columns("shape", FANOUT, [_over(run, run["bytes"]) for run in results.runs])]


def _storm(results: Results) -> list[Table]:
    """Return tables of all runs, one a column."""
    shown = [
        _over(run, run["working_set_bytes"]) | {"reads_over_limit": run["reads_s"] / run["limit_s"]}
        for run in results.runs
    ]
    return [
        _columns("peer", STORM, shown[begin : begin + _COLUMNS])
        for begin in range(0, len(shown), _COLUMNS)
    ]


def _over(run: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Return a run with what it took over the limit, and what was sent over these bytes."""
    return {
        **run,
        "last_over_limit": run["last_s"] / run["limit_s"] if run["limit_s"] else None,
        "source_images": run["source_sent_bytes"] / size,
        "busiest_node_images": run["busiest_node_sent_bytes"] / size,
    }


def _agent(results: Results) -> list[Table]:
    """Return a table of figures, and one of reads with a column for each layer."""
    (run,) = results.runs
    lines = [[title, _cell(run[part][name], form)] for title, part, name, form in AGENT]
    compared = run["over_cache_device"]
    return [
        Table(["", "agent"], lines),
        Table(
            ["warm reads, over the cache device's", *next(iter(compared.values()))],
            [
                [what, *(f"{ratio:.2f}" for ratio in ratios.values())]
                for what, ratios in compared.items()
            ],
        ),
    ]


def _hops(results: Results) -> list[Table]:
    """Return a table of VirtMan beside bare exports and logins."""
    (run,) = results.runs
    sides = [run["virtman"], run["bare"]]
    lines = [
        [f"attached at depth {depth} after", f"{seconds:.2f} s", ""]
        for depth, seconds in run["attach"].items()
    ]
    lines += [[title, form.format(run["image"][name]), ""] for title, name, form in IMAGE]
    lines += [[title, *(form.format(side[name]) for side in sides)] for title, name, form in HOPS]
    lines += [
        [
            f"a cold block at depth {depth}, median (mean)",
            *(
                f"{side['block_ms'][depth]:.2f} ({side['block_mean_ms'][depth]:.2f}) ms"
                for side in sides
            ),
        ]
        for depth in sides[0]["block_ms"]
    ]
    lines += [
        [f"  of a hop: {layer}", f"{ms:.2f} ms", ""] for layer, ms in sides[0]["hop_ms"].items()
    ]
    return [Table(["", "VirtMan", "bare iSCSI"], lines)]


def _openstack(results: Results) -> list[Table]:
    """Return a table of all runs, one a column."""
    named = [run | {"run": f"{run['mode']}, {run['image']}"} for run in map(dict, results.runs)]
    table = _columns("run", OPENSTACK, named)
    table.wrong.extend(
        f"{run['mode']} left behind: {what}" for run in named for what in run["left"]
    )
    table.wrong.extend(f"{run['run']} failed: {run['failed']}" for run in named if "failed" in run)
    return [table]


def _whole(results: Results) -> list[Table]:
    """Return a table of what the runs of one bed say about each other."""
    found = [_ratios("whole copies and layers", WHOLE, results)]
    beside = by_rate(results.runs)
    if len(beside) > len(_USUAL):
        found.append(_beside(beside))
    clusters = [run for run in results.runs if "vms" in run]
    if clusters:
        titles = ["VMs", "each wrote", *(title for title, _ in CLUSTERS)]
        rows = [
            [str(run["vms"]), f"{run['written_bytes']:,} bytes",
             *(f"{run[name]:.1f} s" for _, name in CLUSTERS)]
            for run in clusters
        ]  # fmt: skip
        found.append(Table(titles, rows))
    return found


def _sharing(results: Results) -> list[Table]:
    """Return the same of images that share blocks."""
    return [_ratios("images that share", SHARING, results)]


def _resumed(results: Results) -> list[Table]:
    """Return what resumed VMs took, and what policies of prefetch do by replays."""
    of_policies = [
        {**run, "rate": run["link_bits_s"] / 8} for run in results.runs if run["run"] == "policy"
    ]
    replayed = Results("prefetch", results.origin, of_policies)
    ratios = results.ratios or {}
    unhelped = ratios.get("unhelped", {})
    rows = [
        [row, _cell(ratios[name], form), _cell(unhelped.get(name), form)]
        for row, name, form in RESUMED
    ]
    return [Table(["", "resumed VMs", "unhelped"], rows), *tables(replayed)]


def _ratios(title: str, rows: Sequence[tuple[str, str, str]], results: Results) -> Table:
    ratios = results.ratios or {}
    return Table(["", title], [[row, _cell(ratios[name], form)] for row, name, form in rows])


def _beside(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Return what copies at all rates cost a VM that reads, and when all was there."""
    lines = [
        [_rate(run["rate"]), f"{run['p50_ms']:.1f} ms", f"{run['p95_ms']:.1f} ms",
         _cell(run["fetched_s"], "{:.1f} s")]
        for run in runs
    ]  # fmt: skip
    return Table(["a copy at", "reads of a VM, p50", "p95", "all there"], lines)


def _rate(rate: int | None) -> str:
    return "none" if rate is None else f"{rate:,} bytes/s" if rate else "no limit"


_OF: Mapping[str, Callable[[Results], list[Table]]] = {
    "volt": _volt,
    "churn": _churn,
    "fanout": _fanout,
    "storm": _storm,
    "agent": _agent,
    "hops": _hops,
    "openstack": _openstack,
    "whole": _whole,
    "content": _sharing,
    "resume": _resumed,
    **figures.OF,
}


def _columns(
    key: str, rows: Sequence[tuple[str, str, str]], runs: Sequence[Mapping[str, Any]]
) -> Table:
    lines = [[title, *(_cell(run[name], form) for run in runs)] for title, name, form in rows]
    return Table(["", *(run[key] for run in runs)], lines)


def _cell(value: object, form: str) -> str:
    return "-" if value is None else form.format(value)
