"""A terminal of a given width, for what a program prints to people."""

import fcntl
import os
import pty
import struct
import subprocess
import termios


def run_at_terminal(columns, *command, **environment):
    """Return what a command prints to a terminal, by lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, env={**settings, **environment}, stdout=theirs) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:  # the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    return said.decode().splitlines()
