"""What can go wrong on the test bed, one class for each thing a test may want to catch."""


class LabError(Exception):
    """The base of every error the lab raises."""


class BuildFailed(LabError):
    """An image could not be built."""


class BedExists(LabError):
    """There is a bed of this name already."""

    def __init__(self, name: str):
        super().__init__(
            f"there is a bed {name} already: end it with tools/lab.sh down --name {name}, "
            "or choose another name"
        )


class NoSuchBed(LabError):
    """No bed of this name is recorded."""


class NoSuchNode(LabError):
    """The bed has no node of this name."""


class DeadlinePassed(LabError):
    """A condition did not become true in time."""


class NodeLost(LabError):
    """A node's kernel is gone, with the end of its console in the message."""


class NodeUnreachable(LabError):
    """A node's kernel runs, but nothing in it can be reached: its link may be cut."""


class DatabaseLost(LabError):
    """A database server could not be started, or has ended."""


class VoltLost(LabError):
    """A Volt could not be started, or has ended, with the end of its log in the message."""


class CommandNotStarted(LabError):
    """A node could not start a command, for example because there is no such program."""


class CommandFailed(LabError):
    """A command ended with a status other than 0, with its output in the message."""

    def __init__(self, where: str, argv: list[str], status: int, stdout: str, stderr: str):
        super().__init__(
            f"{where}: {' '.join(argv)} ended with status {status}\n"
            f"{stdout[-4000:]}{stderr[-4000:]}"
        )
        self.argv = argv
        self.status = status
        self.stdout = stdout
        self.stderr = stderr


class CommandTimeout(DeadlinePassed):
    """A command did not end in time; its process group in the node has been ended."""
