"""Connections of another process end one by one."""

import socket
from pathlib import Path

import testtools

from virtman.privileged import sockets

END = sockets.end.args[0]  # what the privileged part calls
PROGRAM = Path("/proc/self/comm").read_text().strip()


class EndTest(testtools.TestCase):
    def test_only_the_connection_of_this_side_s_port_ends(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ip, port = server.getsockname()
            one, two = (socket.create_connection((ip, port)) for _ in range(2))
            peers = [server.accept()[0] for _ in range(2)]
            own = one.getsockname()[1]
            self.assertEqual(0, END(PROGRAM, ip, port, port))
            self.assertEqual(1, END(PROGRAM, ip, port, own))
            self.assertRaises(OSError, one.getpeername)
            self.assertEqual((ip, port), two.getpeername())
            for connection in (one, two, *peers):
                connection.close()
