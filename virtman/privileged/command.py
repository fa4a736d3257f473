"""How the root edge runs a tool: an argument list, a deadline, an error that explains."""

from __future__ import annotations

import errno
import subprocess


def run(*argv: str, timeout: float = 30) -> str:
    """Run a tool and return what it printed.

    :param timeout: seconds; a tool that hangs must not hang the agent
    :raises OSError: EIO with the tool's own words, ETIMEDOUT, or ENOENT
    """
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as err:
        raise OSError(errno.ETIMEDOUT, f"{argv[0]} took more than {timeout} s") from err
    except FileNotFoundError as err:
        raise OSError(errno.ENOENT, f"{argv[0]} is not installed") from err
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).replace("\n", "; ")
        raise OSError(errno.EIO, f"{' '.join(argv)}: status {done.returncode}: {words}")
    return done.stdout
