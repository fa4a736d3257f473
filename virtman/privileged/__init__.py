"""The root edge: everything here, and nothing else, runs with capabilities.

One verb a function, typed arguments, no shell. The modules import nothing of
VirtMan's: what a name means is decided by the layers that call.

``oslo.privsep`` runs the functions in a process of their own. Errors come back
as OSError, whose text says which tool or file refused and why.
"""

from __future__ import annotations

import importlib
import pkgutil
import signal
import warnings

with warnings.catch_warnings():
    # It imports eventlet wherever that is installed, as it is beside oslo.messaging.
    warnings.filterwarnings("ignore", "\nEventlet is deprecated")
    from oslo_privsep import capabilities, priv_context

context = priv_context.PrivContext(
    __name__,
    cfg_section="virtman_privileged",
    pypath=f"{__name__}.context",
    capabilities=[
        capabilities.CAP_SYS_ADMIN,  # device mapper, loop, bcache, configfs
        capabilities.CAP_MKNOD,  # device nodes, which udev does not make for us
        capabilities.CAP_CHOWN,  # and their owner
        capabilities.CAP_SYS_MODULE,  # modprobe
        capabilities.CAP_DAC_OVERRIDE,  # exception stores belong to the agent's user
        capabilities.CAP_SYS_RAWIO,  # bcache registration
        capabilities.CAP_NET_ADMIN,  # iscsiadm speaks netlink
        capabilities.CAP_IPC_LOCK,  # iscsiadm locks its memory
        capabilities.CAP_SYS_PTRACE,  # iscsid's connections to parents that fell silent
    ],
)


def start() -> None:
    """Fork the privileged part off, as root; the caller may then become another account.

    Repeatable. Only the main thread can call it.
    """
    if context.channel is None:
        for module in pkgutil.iter_modules(__path__, f"{__name__}."):
            # an upgrade on the disk must not reach a part that runs
            importlib.import_module(module.name)
        # inherited; without a handler it would end no wait in the kernel
        signal.signal(signal.SIGURG, lambda *_: None)
        context.start(priv_context.Method.FORK)
