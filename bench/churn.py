"""An hour of a site in minutes: hosts come, go and die, and so do Volt and its database.

All hosts wait for news meanwhile, as agents do. In the end Volt's trees are held against what the
hosts know, and its memory against what it was.
"""

import asyncio
import random
import socket
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.report import Progress, Step
from bench.usage import Cores, memory
from lab.client import Client
from lab.crowd import SIZE, Crowd, hashes
from lab.databases import Postgresql
from lab.volt import Volt, source

IMAGES = 20
INTERVAL, EXPIRY = 4, 15  # seconds
SILENCE = 45.0  # seconds: longer than Volt takes to expire a host, whatever it does meanwhile
IDLE = 30.0  # seconds between two acts of a host, on average
SHOWN = 20  # complaints, or faults: more say no more
FLAT = 1.1  # of what a worker had: more has leaked
SETTLED = 30.0  # seconds after which memory is looked at for the first time


def measure(hosts: int, minutes: float, workers: int, progress: Progress) -> dict[str, Any]:
    """Return the figures."""
    with ExitStack() as stack:
        server = stack.enter_context(Postgresql())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = {"heartbeat": {"interval": INTERVAL, "expiry": EXPIRY}}
        volt = stack.enter_context(Volt(folder, server.create("volt"), workers, options))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        seconds = 60 * minutes
        images = [f"churn{number}" for number in range(IMAGES)]
        asyncio.run(_create(volt.client(), images, listener.getsockname()[1]))
        crowd = Crowd([volt.client() for _ in range(hosts)], images, hosts_each=1, seed=24)
        crowd.have_deaths(SILENCE)
        crowd.have_profiles()
        crowd.have_outages()
        step = progress.step("seconds", int(seconds))
        with ThreadPoolExecutor(1) as pool:
            living = pool.submit(asyncio.run, _live(crowd, volt, seconds))
            killed = _kill(volt, server, seconds, step)
            living.result()
        return {
            "hosts": len(crowd.members),
            "images": IMAGES,
            "workers": workers,
            "seconds": seconds,
            "requests_per_s": sum(crowd.done.values()) / seconds,
            "requests": dict(sorted(crowd.done.items())),
            "requests_lost": crowd.lost,
            "hosts_died": crowd.deaths,
            **killed,
            "complaints": crowd.complaints[:SHOWN],
            "faults": [
                *growth(killed["rss_bytes_early"], killed["rss_bytes_late"]),
                *asyncio.run(crowd.faults(volt.client()))[:SHOWN],
            ],
        }


def growth(early: int, late: int) -> list[str]:
    """Return what is wrong with the memory of a worker: nothing, or that it grew.

    :param early: bytes once all had settled
    :param late: bytes in the end
    """
    if late <= early * FLAT:
        return []
    return [f"the largest worker grew from {early:,} to {late:,} bytes"]


async def _create(client: Client, images: Sequence[str], port: int) -> None:
    for name in images:
        body = {"name": name, "size": SIZE, "source": source(port), **hashes()}
        answer = await client.ask("POST", "/v1/images", body)
        assert answer.status == 201, answer


async def _live(crowd: Crowd, volt: Volt, seconds: float) -> None:
    """Let all hosts act and wait for news, and then report once more."""
    polls = [volt.client() for _ in crowd.members]
    await asyncio.gather(crowd.live(seconds, IDLE), crowd.listen(polls, seconds))
    await asyncio.sleep(SILENCE)  # whoever was silent is out, or was heard
    await crowd.settle()


def _kill(volt: Volt, server: Postgresql, seconds: float, step: Step) -> dict[str, Any]:
    """Kill a worker, all of Volt and its database now and then, in the first half.

    In the second half all live, so that memory can be compared, and processor time be told.
    """
    dice, begin = random.Random(24), time.monotonic()  # noqa: S311 - no secret
    killed = {"workers_killed": 0, "volts_killed": 0, "databases_killed": 0}
    turns = ("worker", "worker", "volt", "database")
    while time.monotonic() < begin + seconds / 2:
        _pass(dice.uniform(5, 15), step)
        what = turns[sum(killed.values()) % len(turns)]
        if what == "worker":
            volt.kill_worker(dice.randrange(64))
        elif what == "volt":
            volt.kill()
            volt.start()
        else:
            server.kill()
            _pass(3, step)
            server.start()
        killed[f"{what}s_killed"] += 1
    _pass(SETTLED, step)
    early = max(map(memory, volt.workers()))
    busy = Cores(volt.processes), Cores(server.processes)
    _pass(begin + seconds - time.monotonic(), step)
    return {
        **killed,
        "cores_volt": busy[0].used(),
        "cores_database": busy[1].used(),
        "rss_bytes_early": early,
        "rss_bytes_late": max(map(memory, volt.workers())),
    }


def _pass(seconds: float, step: Step) -> None:
    time.sleep(max(0.0, seconds))
    step.advance(int(seconds))
