"""Starts a node's agent: root only for the privileged part, then a service on a socket."""

from __future__ import annotations

import os
import pwd
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_log import log as logging

from virtman import conf as options
from virtman import privileged
from virtman.cmd.version import version
from virtman.errors import InvalidName, VirtmanError
from virtman.model import naming
from virtman.model.placement import SOURCE

LOG = logging.getLogger(__name__)

_PRIVILEGED_THREADS = 16
_QUIET = ("oslo.privsep=INFO", "oslo_privsep=INFO")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; return the exit status."""
    conf = options.register(cfg.CONF)
    logging.register_options(conf)
    # else it logs the arguments of root verbs, secrets among them, at level debug
    logging.set_defaults(default_log_levels=[*logging.get_default_log_levels(), *_QUIET])
    conf(
        sys.argv[1:] if argv is None else argv,
        project="virtman",
        prog="virtman-agent",
        version=f"virtman-agent {version()}",
    )
    logging.setup(conf, "virtman")
    try:
        _check(conf)
        account = pwd.getpwnam(conf.agent.user)
        _fork(conf)
        # only now: the privileged part has no more in its memory than what it needs
        from virtman import daemon  # noqa: PLC0415

        _become(conf, account)
        api, services = daemon.assemble(conf)
    except (VirtmanError, OSError, KeyError) as err:
        sys.exit(f"virtman-agent: {err}")
    daemon.serve(conf, api, services)
    return 0


def _check(conf: cfg.ConfigOpts) -> None:
    """Refuse what cannot be, before anything is done as root."""
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
    if os.geteuid() != 0:
        raise VirtmanError("start as root: the privileged part is forked off first, then the "
                           f"agent becomes {conf.agent.user}")  # fmt: skip


def _fork(conf: cfg.ConfigOpts) -> None:
    """Fork the privileged part off."""
    # bring-ups, prunes and new VMs each hold a thread while the kernel works
    conf.set_default("thread_pool_size", _PRIVILEGED_THREADS, group="virtman_privileged")
    privileged.start()
    threading.Thread(target=_end_with_privileged, name="privileged", daemon=True).start()


def _become(conf: cfg.ConfigOpts, account: pwd.struct_passwd) -> None:
    """Go on as an ordinary account, which has the agent's folders."""
    folders = [Path(conf.agent.state_dir), Path(conf.agent.socket).parent]
    if conf.whole.folder:
        folders.append(Path(conf.whole.folder))
    for folder in folders:
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


if __name__ == "__main__":
    sys.exit(main())
