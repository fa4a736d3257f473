"""How agents get certificates, and learn where others listen."""

from werkzeug import Request

from volt.api import schemas
from volt.api.handlers import Answer, Service


def certify(service: Service, request: Request, host: str) -> Answer:
    """Sign the host's certificate."""
    pem, ip, port = schemas.certificate(request.get_data())
    return vars(service.peers.certify(host, pem, ip, port))


def revoke(service: Service, request: Request, host: str) -> Answer:
    """Have nobody trust the host any more."""
    service.peers.revoke(host)
    return None, 204


def listener(service: Service, request: Request, host: str) -> Answer:
    """Show where the host's agent listens."""
    return vars(service.peers.listener(host))
