"""Prefers nodes that read an image already: a weigher of nova-scheduler, which loads it by name.

It is off until it gets a weight. Whatever Volt does, a request is scheduled: without an answer in
time no node is preferred, and nobody asks again for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from keystoneauth1 import loading
from nova import conf
from nova.scheduler import utils, weights
from oslo_config import cfg

from virtman.coordinator.auth import Access
from virtman.openstack import flavors, wanted

LOG = logging.getLogger(__name__)

OPTS = [
    cfg.FloatOpt(
        "warm_weight_multiplier",
        default=0.0,
        help="How much a node is preferred that reads the server's image already. Such a server "
        "reads from the node's cache. Higher: servers of an image gather on fewer nodes. 0: "
        "Volt is not asked. The metadata of an aggregate can have another value under this name.",
    ),
    cfg.StrOpt("volt_url", default="http://127.0.0.1:8778", help="Where Volt answers."),
    cfg.StrOpt(
        "volt_token_file",
        default="",
        help="File with a token of Volt's, of role reader. Empty: the account of [placement] asks, "
        "as is right where Volt knows Keystone.",
    ),
    cfg.StrOpt("volt_cafile", default="", help="Certificates that vouch for Volt's, if any do."),
    cfg.FloatOpt(
        "volt_timeout",
        default=1.0,
        min=0.05,
        max=30.0,
        help="Seconds that Volt's answer may take; a request to boot waits for it. Higher: a busy "
        "Volt is heard. Lower: requests are faster while Volt is away.",
    ),
    cfg.FloatOpt(
        "warm_time",
        default=30.0,
        min=0.0,
        help="Seconds for which an answer of Volt, or that there is none, is used again. Higher: "
        "Volt is asked less. Lower: nodes are preferred sooner once they read an image.",
    ),
]
conf.CONF.register_opts(OPTS, group="virtman")


class Warmth:
    """Which hosts read which images, as of a moment ago.

    :param fetch: returns the hosts that read an image
    :param keep: seconds for which that is good enough
    """

    def __init__(
        self,
        fetch: Callable[[str], frozenset[str]],
        keep: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.fetch = fetch
        self.keep = keep
        self.now = now
        # Guards the rest; held while Volt is asked, so that one request asks and others wait.
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, frozenset[str]]] = {}
        self._away = 0.0

    def hosts(self, image: str) -> frozenset[str]:
        """Return the hosts that read an image; none if Volt does not say."""
        with self._lock:
            now = self.now()
            self._known = {name: one for name, one in self._known.items() if one[0] > now}
            if image in self._known:
                return self._known[image][1]
            if now < self._away:
                return frozenset()
            try:
                found = self.fetch(image)
            except Exception as err:
                LOG.warning("no node is preferred for image %s: %s", image, err)
                self._away = self.now() + self.keep
                return frozenset()
            self._known[image] = (self.now() + self.keep, found)
            return found


class WarmWeigher(weights.BaseHostWeigher):  # type: ignore[misc]
    """Gives 1 to nodes that read the image of a server by VirtMan, and 0 to others."""

    minval, maxval = 0.0, 1.0

    def __init__(self) -> None:
        super().__init__()
        self._warmth: Warmth | None = None

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the weight of this weigher, which the node's aggregates may set."""
        name = "warm_weight_multiplier"
        found: float = utils.get_weight_multiplier(host_state, name, conf.CONF.virtman[name])
        return found

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Weigh nodes for a request."""
        image = _image_of(weight_properties)
        nodes = [one.obj for one in weighed_obj_list]
        if not image or not any(map(self.weight_multiplier, nodes)):
            return [0.0 for _ in nodes]
        warm = self._hosts(image)
        return [float(node.host in warm) for node in nodes]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        raise NotImplementedError("nodes are weighed together")

    def _hosts(self, image: str) -> frozenset[str]:
        if self._warmth is None:
            self._warmth = Warmth(_ask, conf.CONF.virtman.warm_time)
        return self._warmth.hosts(image)


def _image_of(request: Any) -> str | None:
    """Return what Volt calls the image of a request's servers, if they have one."""
    golden = flavors.image_of(request.flavor)
    if golden:
        return golden
    image = request.image if request.obj_attr_is_set("image") else None
    if image is None or not image.obj_attr_is_set("id"):
        return None
    if not flavors.allows(request.flavor):
        return None
    return wanted.name_of(image.id)


def _ask(image: str) -> frozenset[str]:
    """Ask Volt which hosts are in an image's trees; none are in those of an unknown one."""
    options = conf.CONF.virtman
    url = f"{options.volt_url.rstrip('/')}/v1/images/{image}/trees"
    if options.volt_token_file:
        access = Access(options.volt_token_file, options.volt_cafile)
        answer = access.session().get(url, timeout=options.volt_timeout, verify=access.trusted)
    else:
        auth = loading.load_auth_from_conf_options(conf.CONF, "placement")
        session = loading.load_session_from_conf_options(
            conf.CONF,
            "placement",
            auth=auth,
            timeout=options.volt_timeout,
            **({"cacert": options.volt_cafile} if options.volt_cafile else {}),
        )
        answer = session.get(url, raise_exc=False)
    if answer.status_code == 404:
        return frozenset()
    answer.raise_for_status()
    trees = answer.json()["trees"]
    return frozenset(node["host"] for tree in trees for node in tree["nodes"])
