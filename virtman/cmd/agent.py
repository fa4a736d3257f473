"""Starts a node's agent: root only for the privileged part, then a service on a socket."""

from __future__ import annotations

import os
import pwd
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import waitress
from oslo_config import cfg
from oslo_log import log as logging

from virtman import conf as options
from virtman import naming, privileged
from virtman.access import Access
from virtman.agent import Agent, Host
from virtman.api import Api
from virtman.arrivals import Arrivals
from virtman.attachment import Times
from virtman.credentials import Credentials, Renewal
from virtman.errors import InvalidName, VirtmanError
from virtman.heartbeat import Heartbeat
from virtman.merger import Merger
from virtman.moves import Moves
from virtman.network import Card, Overload
from virtman.peers import Peers
from virtman.plan import SOURCE
from virtman.pulse import Pulse
from virtman.record import Records
from virtman.recovery import Recovery
from virtman.remembering import Memory, Remembering
from virtman.scrub import Scrubbing
from virtman.space import Limits, Space
from virtman.stack import Stack
from virtman.stores import Stores
from virtman.supply import Supply
from virtman.volumes import Backing
from virtman.volumes.file import Folder
from virtman.volumes.lvm import Group
from virtman.watch import Watch

LOG = logging.getLogger(__name__)

_SOCKET_MODE = "660"
_PRIVILEGED_THREADS = 16
_MIB = 1024 * 1024
_QUIET = ("oslo.privsep=INFO", "oslo_privsep=INFO")


class Service(Protocol):
    """What goes on beside the local API, on a thread of its own."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End; the devices stay."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; return the exit status."""
    conf = options.register(cfg.CONF)
    logging.register_options(conf)
    # else it logs the arguments of root verbs, secrets among them, at level debug
    logging.set_defaults(default_log_levels=[*logging.get_default_log_levels(), *_QUIET])
    conf(sys.argv[1:] if argv is None else argv, project="virtman")
    logging.setup(conf, "virtman")
    try:
        host = _host(conf)
        _enter(conf)
        agent = _agent(conf, host)
        agent.stack.forget_lost()
        moves, arrivals, journeys = _journeys(conf, agent)
        services = [*_services(conf, agent), *journeys]
    except (VirtmanError, OSError, KeyError) as err:
        sys.exit(f"virtman-agent: {err}")
    _serve(conf, Api(agent, moves, arrivals), services)
    return 0


def _host(conf: cfg.ConfigOpts) -> Host:
    name = naming.check("host", conf.agent.host)
    if name == SOURCE:
        raise InvalidName(f"host name {SOURCE!r} is what the root of a tree is called")
    if not conf.export.ip:
        raise VirtmanError("set [export] ip to this node's address on the storage network")
    if not conf.cache.devices and conf.cache.driver != "none":
        raise VirtmanError(
            "set [cache] devices to local block devices that may be overwritten, or "
            "[cache] driver = none"
        )
    return Host(name, conf.export.ip, conf.export.port)


def _enter(conf: cfg.ConfigOpts) -> None:
    """Fork the privileged part off, then become an ordinary account."""
    if os.geteuid() != 0:
        raise VirtmanError("start as root: the privileged part is forked off first, then the "
                           f"agent becomes {conf.agent.user}")  # fmt: skip
    account = pwd.getpwnam(conf.agent.user)
    # bring-ups, prunes and new VMs each hold a thread while the kernel works
    conf.set_default("thread_pool_size", _PRIVILEGED_THREADS, group="virtman_privileged")
    privileged.start()
    threading.Thread(target=_end_with_privileged, name="privileged", daemon=True).start()
    for folder in (Path(conf.agent.state_dir), Path(conf.agent.socket).parent):
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, account.pw_uid, account.pw_gid)
    os.initgroups(account.pw_name, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    os.umask(0o077)


def _end_with_privileged() -> None:
    """End the agent when its privileged part ends: nothing could be done without it.

    A supervisor then starts both anew; this account could not.
    """
    channel = privileged.context.channel
    assert channel is not None
    channel.reader_thread.join()
    LOG.critical("the privileged part ended; stopping")
    os.kill(os.getpid(), signal.SIGTERM)


def _agent(conf: cfg.ConfigOpts, host: Host) -> Agent:
    folder = Path(conf.agent.state_dir)
    records = Records(folder)
    records.prepare()
    images = folder / "images"
    images.mkdir(exist_ok=True)
    memory = Memory(folder / "volt")
    memory.prepare()
    stack = Stack(
        conf.cache.driver,
        conf.cache.devices,
        images,
        verify=conf.image.verify,
        selector=conf.image.path_selector,
        shared=conf.image.path_grouping_policy == "multibus",
    )
    return Agent(
        host,
        stack,
        Remembering(
            memory,
            conf.volt.url,
            host.name,
            conf.volt.timeout,
            _access(conf),
            conf.agent.rack,
        ),
        Stores(stack, records, Space(records, _backing(conf, records), _limits(conf))),
        Times(
            conf.image.keep_time,
            conf.image.attach_timeout,
            conf.image.leave_timeout,
            conf.image.warm_after,
        ),
    )


def _access(conf: cfg.ConfigOpts) -> Access:
    if not conf.keystone.auth_type:
        return Access(conf.volt.token_file, conf.volt.cafile)
    from virtman import keystone  # noqa: PLC0415 - only who logs in there needs its library

    return Access(cafile=conf.volt.cafile, keystone=keystone.tokens(conf))


def _backing(conf: cfg.ConfigOpts, records: Records) -> Backing:
    if conf.store.backing == "file":
        return Folder(records.stores)
    if not conf.store.volume_group:
        raise VirtmanError("[store] backing is lvm: set volume_group too")
    return Group(conf.store.volume_group)


def _limits(conf: cfg.ConfigOpts) -> Limits:
    given = conf.store
    return Limits(
        given.overcommit,
        given.quota * _MIB,
        given.reserve * _MIB,
        given.ahead * _MIB,
        given.warning,
    )


def _serve(conf: cfg.ConfigOpts, api: Api, services: Sequence[Service]) -> None:
    agent = api.agent
    Path(conf.agent.socket).unlink(missing_ok=True)
    server = waitress.create_server(
        api,
        unix_socket=conf.agent.socket,
        unix_socket_perms=_SOCKET_MODE,
        threads=conf.agent.threads,
    )
    for service in services:
        service.start()
    signal.signal(signal.SIGTERM, _stop)
    LOG.info("serving images as %s on %s", agent.host.name, agent.host.ip)
    try:
        server.run()
    except (KeyboardInterrupt, SystemExit):
        LOG.info("stopping; devices stay as they are")
    finally:
        server.close()
        for service in reversed(services):
            service.stop()
        agent.stop()


def _services(conf: cfg.ConfigOpts, agent: Agent) -> list[Service]:
    """Make what goes on beside the local API."""
    url = conf.notify.transport_url
    card = Card(conf.export.ip, conf.export.bandwidth)
    heartbeat = Heartbeat(agent, card, Overload(conf.agent.overload))
    watch = Watch(agent, heartbeat, called=bool(url))
    recovery = Recovery(agent, conf.agent.ready_timeout)
    scrubbing = Scrubbing(agent, conf.image.scrub_interval, conf.image.scrub_rate)
    services: list[Service] = [heartbeat, recovery, watch, Pulse(agent), scrubbing]
    services += [Merger(agent.stores), Supply(agent.stores)]
    if url:
        services.append(_calls(conf, url, agent.host.name, watch))
    return services


def _journeys(conf: cfg.ConfigOpts, agent: Agent) -> tuple[Moves, Arrivals, Sequence[Service]]:
    """Make what sends VMs to other hosts, and takes them, with what goes on beside the API."""
    given = conf.peers
    credentials = Credentials(agent.coordinator, Path(conf.agent.state_dir), given.ip, given.port)
    peers = Peers(agent.coordinator, credentials, given.timeout)
    moves, arrivals = Moves(agent, peers, given.patience), Arrivals(agent, peers)
    services: list[Service] = [moves]
    if given.ip:
        from virtman.remote import Listener, Remote  # noqa: PLC0415 - a server of its own

        listener = Listener(Remote(moves, arrivals), credentials)
        services += [arrivals, Renewal(credentials), listener]
    return moves, arrivals, services


def _calls(conf: cfg.ConfigOpts, url: str, host: str, watch: Watch) -> Service:
    try:
        from virtman.calls import Calls  # noqa: PLC0415 - needs an optional library
    except ImportError as err:
        raise VirtmanError(
            "[notify] transport_url is set: install the Python package oslo.messaging, "
            f"or unset it ({err})"
        ) from err
    calls: Service = Calls(conf, url, host, watch.call)
    return calls


def _stop(signum: int, frame: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
