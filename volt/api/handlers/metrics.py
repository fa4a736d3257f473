"""What Volt counts, for Prometheus."""

from prometheus_client import CONTENT_TYPE_LATEST
from werkzeug import Request, Response

from volt import metrics
from volt.api.handlers import Answer, Service


def show(service: Service, request: Request) -> Answer:
    """Show all metrics of this Volt."""
    figures = service.coordinator.figures()
    return Response(metrics.text(figures), content_type=CONTENT_TYPE_LATEST)
