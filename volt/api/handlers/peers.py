"""How agents get certificates, and learn where others listen."""

from flask import request
from flask.typing import ResponseReturnValue

from volt.api import parsing
from volt.api.handlers import Service


def certify(service: Service, host: str) -> ResponseReturnValue:
    """Sign the host's certificate."""
    return vars(service.peers.certify(host, *parsing.certificate(host, request.get_data())))


def revoke(service: Service, host: str) -> ResponseReturnValue:
    """Have nobody trust the host any more."""
    service.peers.revoke(host)
    return "", 204


def listener(service: Service, host: str) -> ResponseReturnValue:
    """Show where the host's agent listens."""
    return vars(service.peers.listener(host))
