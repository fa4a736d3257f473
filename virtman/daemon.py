"""What an agent consists of, put together from its options."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from oslo_config import cfg
from oslo_log import log as logging

from virtman import atomic_file
from virtman.api.local import Api
from virtman.background.boots import Boots
from virtman.background.copying import Copying
from virtman.background.heartbeat import Heartbeat
from virtman.background.liveness import Pulse
from virtman.background.longpoll import Watch
from virtman.background.metrics import Figures, Metrics
from virtman.background.nic import Card, Overload
from virtman.background.recovery import Recovery
from virtman.background.scrub import Scrubbing
from virtman.background.temporaries import Temporaries
from virtman.background.waiting import Waiting
from virtman.background.warmups import Warmups
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.memory import Memory
from virtman.coordinator.offline import Remembering
from virtman.disk.capacity import Limits, Space
from virtman.disk.disks import Stores
from virtman.disk.layers import Layers
from virtman.disk.merger import Merger
from virtman.disk.records import Records
from virtman.disk.space_guard import Supply
from virtman.disk.volumes import Backing
from virtman.disk.volumes.file import Folder
from virtman.disk.volumes.lvm import VolumeGroup
from virtman.errors import VirtmanError
from virtman.image.boot import Options
from virtman.image.copies import Copies
from virtman.image.life import Times
from virtman.image.prefetch import How
from virtman.image.share import SharedCap
from virtman.migration.checkpoints import Checkpoints
from virtman.migration.commits import Commits
from virtman.migration.incoming import Arrivals
from virtman.migration.outgoing import Moves
from virtman.migration.peer_client import Peers
from virtman.migration.tls import Credentials, renewal
from virtman.model.prefetch_order import Policy
from virtman.node.agent import Agent
from virtman.node.images import Host, Images
from virtman.server import Server
from virtman.stack.builder import Stack

LOG = logging.getLogger(__name__)

_KIB, _MIB = 1024, 1024 * 1024


class Service(Protocol):
    """What goes on beside the local API, on a thread of its own."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; the devices stay."""


def assemble(conf: cfg.ConfigOpts) -> tuple[Api, Sequence[Service]]:
    """Make an agent, with what goes on beside the local API.

    The caller has become the agent's account, and has forked the privileged part off.

    :raises VirtmanError: if options contradict each other
    """
    card = Card(conf.export.ip, conf.export.bandwidth)
    agent = _agent(conf, card)
    agent.stack.prepare()
    heartbeat = Heartbeat(agent.images, card, Overload(conf.agent.overload))
    boots = Boots(agent.images, _boots(conf), heartbeat.hasten)
    copying = Copying(agent.images, agent.images.copies, boots.options.how.cap, heartbeat.hasten)
    layers = Layers(Path(conf.agent.state_dir) / "layers", agent.stores.space)
    layers.prepare()
    commits = Commits(agent, layers)  # first, as VMs of this node may need what it serves
    checkpoints = Checkpoints(commits, Path(conf.agent.state_dir) / "checkpoints")
    checkpoints.prepare()
    moves, arrivals, journeys = _journeys(conf, agent, commits)
    services: list[Service] = [commits, boots, copying, checkpoints]
    services += _services(conf, agent, heartbeat, boots, copying)
    services += [_metrics(conf, boots, copying), *journeys]
    return Api(agent, moves, arrivals, boots, copying, checkpoints), services


def serve(conf: cfg.ConfigOpts, api: Api, services: Sequence[Service]) -> None:
    """Run until told to stop; the devices stay."""
    agent = api.agent
    server = Server(conf.agent.socket, api, conf.agent.threads)
    server.prepare()
    for service in services:
        service.start()
    signal.signal(signal.SIGTERM, _stop)
    LOG.info("serving images as %s on %s", agent.host.name, agent.host.ip)
    try:
        server.serve()
    except (KeyboardInterrupt, SystemExit):
        LOG.info("stopping; devices stay as they are")
    finally:
        server.stop()
        for service in reversed(services):
            service.stop()
        agent.images.stop()
        agent.stores.suspension.stop()


def _agent(conf: cfg.ConfigOpts, card: Card) -> Agent:
    folder = Path(conf.agent.state_dir)
    hashes = folder / "images"
    for one in (folder, hashes):
        atomic_file.prepare(one)
    records = Records(folder)
    records.prepare()
    memory = Memory(folder / "volt")
    memory.prepare()
    stack = Stack(
        conf.cache.driver,
        conf.cache.devices,
        hashes,
        verify=conf.image.verify,
        selector=conf.image.path_selector,
        shared=conf.image.path_grouping_policy == "multibus",
    )
    host = Host(conf.agent.host, conf.export.ip, conf.export.port)
    space = Space(records, _backing(conf, records), _limits(conf))
    copies = Copies(folder / "copies", Path(conf.whole.folder or folder / "whole"), space)
    copies.prepare()
    volt = VoltClient(
        conf.volt.url, host.name, conf.volt.timeout, _access(conf), conf.agent.rack, card.speed
    )
    stores = Stores(stack, records, space)
    times = Times(
        conf.image.keep_time,
        conf.image.attach_timeout,
        conf.image.leave_timeout,
        conf.image.warm_after,
    )
    images = Images(host, stack, Remembering(volt, memory), records, stores.origins, times, copies)
    return Agent(images, stores)


def _access(conf: cfg.ConfigOpts) -> Access:
    if not conf.keystone.auth_type:
        return Access(conf.volt.token_file, conf.volt.cafile)
    from virtman.coordinator import keystone  # noqa: PLC0415 - only who logs in there needs its library

    return Access(cafile=conf.volt.cafile, keystone=keystone.tokens(conf))


def _backing(conf: cfg.ConfigOpts, records: Records) -> Backing:
    if conf.store.backing == "file":
        return Folder(records.stores)
    if not conf.store.volume_group:
        raise VirtmanError("[store] backing is lvm: set volume_group too")
    return VolumeGroup(conf.store.volume_group)


def _limits(conf: cfg.ConfigOpts) -> Limits:
    given = conf.store
    return Limits(
        given.overcommit,
        given.quota * _MIB,
        given.reserve * _MIB,
        given.ahead * _MIB,
        given.warning,
    )


def _boots(conf: cfg.ConfigOpts) -> Options:
    given = conf.profile
    how = How(Policy(given.policy), given.window, SharedCap(given.rate * _MIB))
    return Options(given.record, given.piece_size * _KIB, given.prefetch, how)


def _metrics(conf: cfg.ConfigOpts, boots: Boots, copying: Copying) -> Service:
    figures = Figures(boots.images, boots, copying)
    metrics: Service = Metrics(figures, conf.metrics.ip, conf.metrics.port)
    return metrics


def _services(
    conf: cfg.ConfigOpts, agent: Agent, heartbeat: Heartbeat, boots: Boots, copying: Copying
) -> list[Service]:
    """Make what goes on beside the local API."""
    url = conf.notify.transport_url
    images, warmups = agent.images, Warmups(boots)
    watch = Watch(images, heartbeat, warmups.ask, called=bool(url))
    recovery = Recovery(agent, conf.agent.ready_timeout)
    scrubbing = Scrubbing(images, copying, conf.image.scrub_interval, conf.image.scrub_rate)
    services: list[Service] = [heartbeat, recovery, warmups, watch, Pulse(images), scrubbing]
    services += [
        Waiting(images, heartbeat.hasten),
        Merger(agent.stores),
        Supply(agent.stores),
        Temporaries(agent),
    ]
    if url:
        services.append(_calls(conf, url, agent.host.name, watch))
    return services


def _journeys(
    conf: cfg.ConfigOpts, agent: Agent, commits: Commits
) -> tuple[Moves, Arrivals, Sequence[Service]]:
    """Make what sends VMs to other hosts, and takes them, with what goes on beside the API."""
    given = conf.peers
    credentials = Credentials(agent.coordinator, Path(conf.agent.state_dir), given.ip, given.port)
    peers = Peers(agent.coordinator, credentials, given.timeout)
    moves, arrivals = Moves(agent, peers, given.patience), Arrivals(agent, peers)
    services: list[Service] = [moves]
    if given.ip:
        from virtman.migration.peer_server import Listener, Remote  # noqa: PLC0415 - a server of its own

        listener = Listener(Remote(moves, arrivals, commits), credentials)
        services += [arrivals, renewal(credentials), listener]
    return moves, arrivals, services


def _calls(conf: cfg.ConfigOpts, url: str, host: str, watch: Watch) -> Service:
    try:
        from virtman.background.rpc import Calls  # noqa: PLC0415 - needs an optional library
    except ImportError as err:
        raise VirtmanError(
            "[notify] transport_url is set: install the Python package oslo.messaging, "
            f"or unset it ({err})"
        ) from err
    calls: Service = Calls(conf, url, host, watch.call)
    return calls


def _stop(signum: int, frame: object) -> None:
    raise SystemExit(0)
