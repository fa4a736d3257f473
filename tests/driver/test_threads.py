"""Nova-compute does several things at once, in native threads or in those of eventlet."""

import os
import socket
import threading

import fixtures
from nova import test

from virtman.api.client import Client

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"instances": []}'


class ThreadsTest(test.NoDBTestCase):
    def test_service_goes_on_while_the_agent_is_asked(self):
        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(ANSWER)

        path = os.path.join(self.useFixture(fixtures.TempDir()).path, "agent.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            # Another thread of the service gets its turn only if the question does not block all.
            thread = threading.Thread(target=answer)
            thread.start()
            self.assertEqual([], Client(path, timeout=10).list())
            thread.join()
