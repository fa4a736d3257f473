"""Who and what Keystone knows on a bed; a program of the environment of the services.

    python catalog.py ADDRESS GLANCE PASSWORD HOST...

Makes the users of the services and of the demo, the endpoints, and a user for each host of
VirtMan. Safe to run again.
"""

import sys

import openstack

SERVICES = ("placement", "glance", "nova", "cinder", "neutron", "heat", "volt")
ENDPOINTS = {
    "placement": ("placement", "http://{}:8780"),
    "glance": ("image", "{glance}"),
    "nova": ("compute", "http://{}:8774/v2.1"),
    "cinder": ("block-storage", "http://{}:8776/v3/%(project_id)s"),
    "cinderv3": ("volumev3", "http://{}:8776/v3/%(project_id)s"),
    "heat": ("orchestration", "http://{}:8004/v1/%(project_id)s"),
    "volt": ("virtman", "http://{}:8778"),
}


def main(address: str, glance: str, password: str, *hosts: str) -> None:
    """Make what is missing."""
    identity = openstack.connect().identity
    roles = {role.name: role for role in identity.roles()}
    for name in ("service", "host"):
        roles.setdefault(name, None)
        roles[name] = roles[name] or identity.create_role(name=name)
    service, demo = (
        identity.find_project(name) or identity.create_project(name=name, domain_id="default")
        for name in ("service", "demo")
    )

    def user(name, project, *granted):
        found = identity.find_user(name) or identity.create_user(
            name=name, password=password, domain_id="default", default_project_id=project.id
        )
        for role in granted:
            identity.assign_project_role_to_user(project, found, roles[role])

    for name in SERVICES:
        user(name, service, "admin", "service")
    for host in hosts:
        user(f"virtman-{host}", service, "host")
    user("demo", demo, "member")
    user("admin", demo, "admin")
    known = {one.name for one in identity.services()}
    for name, (kind, url) in ENDPOINTS.items():
        if name not in known:
            made = identity.create_service(name=name, type=kind)
            for interface in ("public", "internal", "admin"):
                identity.create_endpoint(
                    service_id=made.id,
                    interface=interface,
                    region_id="RegionOne",
                    url=url.format(address, glance=glance),
                )


if __name__ == "__main__":
    main(*sys.argv[1:])
