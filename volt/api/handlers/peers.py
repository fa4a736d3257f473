"""How agents get certificates, and learn where others listen."""

from flask import request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service


def certify(service: Service, host: str) -> ResponseReturnValue:
    """Sign the host's certificate."""
    pem, ip, port = parsing.certificate(request.get_data())
    return vars(service.peers.certify(host, pem, ip, port))


def revoke(service: Service, host: str) -> ResponseReturnValue:
    """Have nobody trust the host any more."""
    service.peers.revoke(host)
    return "", 204


def listener(service: Service, host: str) -> ResponseReturnValue:
    """Show where the host's agent listens."""
    return vars(service.peers.listener(host))
