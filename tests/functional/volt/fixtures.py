"""What each gabbit starts from; the gabbi loader finds the classes by name."""

import os
from base64 import b64encode
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from gabbi import fixture

from tests.functional.volt.base import Ground
from tests.profiles import ROOT_HASH, UPPER_HASHES


class EmptyVolt(fixture.GabbiFixture):
    """An empty Volt; SOURCE_PORT answers, DEAD_PORT does not.

    ROOT_HASH and UPPER_HASHES are those of the images that profiles are for.
    There are tokens of each role (HOST_TOKEN is for host "a"), and such as do not count.
    """

    ground = None

    def start_fixture(self):
        self.cleanups = ExitStack()
        EmptyVolt.ground = Ground(self.cleanups)
        os.environ["SOURCE_PORT"] = str(EmptyVolt.ground.source_port)
        os.environ["DEAD_PORT"] = "1"
        os.environ["ROOT_HASH"] = ROOT_HASH
        os.environ["UPPER_HASHES"] = b64encode(UPPER_HASHES).decode()
        os.environ |= self.tokens(EmptyVolt.ground)

    def tokens(self, ground):
        past = datetime.now(UTC) - timedelta(seconds=1)
        ((revoked, secret),) = ground.tokens.create("operator", [None], past, None)
        ground.tokens.revoke(revoked.name)
        return {
            "OPERATOR_TOKEN": ground.operator,
            "READER_TOKEN": ground.token("reader"),
            "HOST_TOKEN": ground.token("host", "a"),
            "EXPIRED_TOKEN": ground.token("operator", expires_at=past),
            "REVOKED_TOKEN": secret,
        }

    def stop_fixture(self):
        EmptyVolt.ground = None
        self.cleanups.close()


def app():
    """Return a WSGI application; gabbi asks for it before any gabbit has started."""

    def serve(environ, start_response):
        return EmptyVolt.ground.app(environ, start_response)

    return serve
