"""What each gabbit starts from; the gabbi loader finds the classes by name."""

from contextlib import ExitStack

from gabbi import fixture

from tests.functional.virtman.base import Bed, Impatient
from tests.functional.virtman.doubles.simulated import SimulatedKernels


class OneNode(fixture.GabbiFixture):
    """Node ``a`` of a bed with image ``debian``; the VM ``held`` cannot be destroyed."""

    node = None

    def start_fixture(self):
        self.cleanups = ExitStack()
        kernels = self.cleanups.enter_context(SimulatedKernels())
        self.cleanups.enter_context(Impatient())
        bed = Bed(self.cleanups, kernels.network)
        OneNode.node = bed.node("a")
        OneNode.node.kernel.held.add("/dev/mapper/virtman_debian_vm_held")

    def stop_fixture(self):
        OneNode.node = None
        self.cleanups.close()


def app():
    """Return a WSGI application; gabbi asks for it before any gabbit has started."""

    def serve(environ, start_response):
        with OneNode.node.process.here():
            return OneNode.node.api()(environ, start_response)

    return serve
