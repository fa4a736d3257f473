"""The bed has no networks: a launch without them asks nova for "none", and no groups guard them."""

from openstack_dashboard.api import neutron, nova


class _None(str):
    """Has no members for who looks for a network among them."""

    def __iter__(self):
        return iter(())


_create = nova.server_create


def _create_without_network(request, *args, **kwargs):
    if len(args) < 9 and not kwargs.get("nics"):
        kwargs["nics"] = _None("none")
    return _create(request, *args, **kwargs)


nova.server_create = _create_without_network
neutron.security_group_list = lambda request, **filters: []
