"""PID 1 of a running node: runs argument lists for the lab and reaps every process.

A request is one JSON line, then `stdin` bytes of standard input:

    {"argv": [...], "env": {...}, "cwd": "/", "stdin": 0, "log": null}

The answer is one JSON line, then the two outputs:

    {"status": 0, "stdout": 5, "stderr": 0}      status < 0: ended by that signal
    {"pid": 123}                                 a request with `log`: started, not awaited
    {"error": "..."}                             it could not be started

A client that closes its connection before the answer ends its command's process group.
Outputs go through files, not pipes, so a daemon that keeps them open delays no answer.

A node takes longer to load VirtMan's command than to run it. So ``virtman`` is loaded here, at its
first call, and each call is a process that is forked. A shell in the node starts it as a host does.
"""

import asyncio
import contextlib
import functools
import gc
import json
import os
import signal
import site
import subprocess
import sys
import tempfile
import traceback


class Children:
    """The only caller of waitpid, so that orphans and commands never steal each other's status."""

    def __init__(self):
        self.exits = {}

    def start(self, argv, **settings):
        """Start a command in its own session; return its pid and a future of its status."""
        if argv[0] == "virtman":
            pid = fork(argv, **settings)
        else:
            child = subprocess.Popen(argv, start_new_session=True, **settings)
            child.returncode = 0  # tells subprocess that there is nothing for it to wait for
            pid = child.pid
        exit_ = asyncio.get_running_loop().create_future()
        self.exits[pid] = exit_
        return pid, exit_

    def reap(self):
        """Collect every process that has ended, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            exit_ = self.exits.pop(pid, None)
            if exit_ is not None and not exit_.done():
                exit_.set_result(os.waitstatus_to_exitcode(status))


class Server:
    """Answers one request a connection."""

    def __init__(self, children):
        self.children = children

    async def serve(self, reader, writer):
        """Answer a connection's request and close it."""
        try:
            request = json.loads(await reader.readline())
            with tempfile.TemporaryFile() as stdin:
                stdin.write(await reader.readexactly(request["stdin"]))
                stdin.seek(0)
                await self.answer(request, stdin, reader, writer)
            await writer.drain()
        except Exception as err:  # VirtMan's own code may not load
            if not writer.is_closing():
                send(writer, {"error": str(err)})
        finally:
            writer.close()

    async def answer(self, request, stdin, reader, writer):
        """Start what the request asks for and answer with its end, or with its pid."""
        settings = {
            "env": {**os.environ, **request["env"]},
            "cwd": request["cwd"],
            "stdin": stdin,
        }
        if request["log"] is not None:
            with open(request["log"], "ab") as log:
                pid, _ = self.children.start(
                    request["argv"], stdout=log, stderr=subprocess.STDOUT, **settings
                )
            send(writer, {"pid": pid})
            return
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            pid, exit_ = self.children.start(
                request["argv"], stdout=stdout, stderr=stderr, **settings
            )
            status = await end_of(pid, exit_, reader)
            outputs = [contents(stdout), contents(stderr)]
        send(
            writer,
            {"status": status, "stdout": len(outputs[0]), "stderr": len(outputs[1])},
            outputs,
        )


@functools.cache
def load(path):
    """Load VirtMan's command; return its module."""
    site.main()  # this process began without Debian's packages
    sys.path[:0] = path.split(":")
    from virtman.cmd import image, shell, vm  # noqa: F401, PLC0415  # most calls are of these

    gc.freeze()  # else a child copies all of it as soon as it counts what is garbage
    return shell


def fork(argv, env, cwd, stdin, stdout, stderr):
    """Start VirtMan's command in a process that has it loaded already; return its pid."""
    shell = load(env["PYTHONPATH"])
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for to, file in enumerate((stdin, stdout, stderr)):
            os.dup2(stdout.fileno() if file == subprocess.STDOUT else file.fileno(), to)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = list(argv)
        shell.main()
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        # whatever happens, no child goes on as this server
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


async def end_of(pid, exit_, reader):
    """Return a command's status; end its process group if the client goes away first."""
    gone = asyncio.ensure_future(reader.read(1))
    await asyncio.wait({exit_, gone}, return_when=asyncio.FIRST_COMPLETED)
    if not exit_.done():
        os.killpg(pid, signal.SIGKILL)
        raise ConnectionResetError("the client went away")
    gone.cancel()
    return exit_.result()


def contents(file):
    """Return all of a temporary file, from its start."""
    file.seek(0)
    return file.read()


def send(writer, header, parts=()):
    """Write a header line and the bytes it announces."""
    writer.write(json.dumps(header).encode() + b"\n")
    for part in parts:
        writer.write(part)


async def main(address, port):
    """Serve until the node's power is cut."""
    children = Children()
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, children.reap)
    server = await asyncio.start_server(Server(children).serve, address, port, backlog=128)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
