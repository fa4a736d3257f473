"""Sends units down trees with SimGrid; run by Debian's python3, which has its package.

Reads ``{"link": bytes/s, "unit": bytes, "units": [number of each stripe], "edges": [[stripe,
parent, child]]}`` from standard input, and prints the seconds until each host has all.
"""

import json
import sys

from simgrid import (
    Actor,
    Engine,
    Host,
    LinkInRoute,
    Mailbox,
    NetZone,
    Semaphore,
)

# fair shares of what links carry, without what SimGrid takes off for TCP
PLAIN = (
    "network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0",
    "network/bandwidth-factor:1", "network/latency-factor:1", "contexts/stack-size:64",
)  # fmt: skip


def main():
    asked = json.load(sys.stdin)
    engine = Engine(["broadcast", "--log=root.thres:critical", *(f"--cfg={one}" for one in PLAIN)])
    zone = NetZone.create_star_zone("hosts")
    hosts = sorted({name for _, *ends in asked["edges"] for name in ends})
    for name in hosts:
        host = zone.create_host(name, 1e9)
        link = zone.create_split_duplex_link(f"link-{name}", asked["link"])
        up = LinkInRoute(link, LinkInRoute.Direction.UP)
        zone.add_route(host.netpoint, None, None, None, [up], True)
    zone.seal()
    ends = {}
    below = {}

    def send(child, stripe, there):
        box = Mailbox.by_name(f"{child}-{stripe}")
        for _ in range(asked["units"][stripe]):
            there.acquire()
            box.put(0, asked["unit"])

    def receive(name, stripe):
        box = Mailbox.by_name(f"{name}-{stripe}")
        for _ in range(asked["units"][stripe]):
            box.get()
            for there in below.get((name, stripe), ()):
                there.release()
        ends[name] = max(Engine.clock, ends.get(name, 0.0))

    for stripe, parent, child in asked["edges"]:
        there = Semaphore(asked["units"][stripe] if parent == "source" else 0)
        below.setdefault((parent, stripe), []).append(there)
        Actor.create(f"send-{child}-{stripe}", Host.by_name(parent), send, child, stripe, there)
        Actor.create(f"receive-{child}-{stripe}", Host.by_name(child), receive, child, stripe)
    engine.run()
    json.dump(ends, sys.stdout)


main()
