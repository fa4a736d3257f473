"""What each gabbit starts from; the gabbi loader finds the classes by name."""

import os
from contextlib import ExitStack

from gabbi import fixture

from tests.functional.volt.base import Ground


class EmptyVolt(fixture.GabbiFixture):
    """An empty Volt; SOURCE_PORT answers, DEAD_PORT does not."""

    ground = None

    def start_fixture(self):
        self.cleanups = ExitStack()
        EmptyVolt.ground = Ground(self.cleanups)
        os.environ["SOURCE_PORT"] = str(EmptyVolt.ground.source_port)
        os.environ["DEAD_PORT"] = "1"

    def stop_fixture(self):
        EmptyVolt.ground = None
        self.cleanups.close()


def app():
    """Return a WSGI application; gabbi asks for it before any gabbit has started."""

    def serve(environ, start_response):
        return EmptyVolt.ground.app(environ, start_response)

    return serve
