"""A small cloud on loopback: as much of OpenStack's APIs as Horizon asks of it.

::

    /identity/v3   users, projects and tokens; the only service that looks at a password
    /compute/v2.1  flavors, limits, and servers that become ACTIVE once they were looked at
    /volume/v3     volumes, their types and snapshots
    /image/v2      no images
    /network/v2.0  one network
    /placement     room for exception stores, of which it tells administrators only
"""

from contextlib import ExitStack
from uuid import UUID, uuid5

from tests.functional.volt.keystone import Keystone, StandIn

PROJECT = "5f0c2d6b9a1e4c7d8b3a2f1e0d9c8b7a"
MADE = "2026-11-20T10:00:00.000000"
GIB = 1024**3


def number(name):
    """Return the id of what has this name."""
    return str(uuid5(UUID(int=0), name))


class Cloud(StandIn):
    """What is there, and what was asked for.

    :ivar asked: bodies of the requests that would change something, as (method, path, body)
    :ivar types: volume types that users see
    :ivar snapshots: names of volume snapshots, with their GiB
    :ivar refusal: what Nova says to a request for servers, instead of making them
    """

    def __init__(self, cleanups: ExitStack) -> None:
        super().__init__(cleanups)
        self.asked = []
        self.types = ["lvm", "virtman"]
        self.snapshots = {"debian-golden": 8, "windows-golden": 40}
        self.servers = []
        self.refusal = None
        self.quota = 20
        accounts = {"admin": ["admin", "member", "reader"], "demo": ["member"], "volt": ["service"]}
        self.keystone = Keystone(self, "/identity", accounts, PROJECT)
        self.keystone.services |= {
            "compute": f"{self.url}/compute/v2.1",
            "block-storage": f"{self.url}/volume/v3/{PROJECT}",
            "volumev3": f"{self.url}/volume/v3/{PROJECT}",
            "image": f"{self.url}/image",
            "network": f"{self.url}/network",
            "placement": f"{self.url}/placement",
        }
        for path, methods, answer in (
            ("/compute/", ["GET"], self.nova),
            ("/compute/v2.1/", ["GET"], self.nova),
            ("/compute/v2.1/servers", ["POST"], self.create_servers),
            ("/compute/v2.1/servers/detail", ["GET"], self.list_servers),
            ("/compute/v2.1/servers/<server>", ["GET"], self.show_server),
            ("/compute/v2.1/flavors/detail", ["GET"], self.flavors),
            ("/compute/v2.1/flavors/<flavor>", ["GET"], self.flavor),
            ("/compute/v2.1/flavors/<_>/os-extra_specs", ["GET"], self.always(extra_specs={})),
            ("/compute/v2.1/limits", ["GET"], self.limits),
            ("/compute/v2.1/os-simple-tenant-usage/<_>", ["GET"], self.always(tenant_usage={})),
            ("/compute/v2.1/os-keypairs", ["GET"], self.always(keypairs=[])),
            ("/compute/v2.1/os-server-groups", ["GET"], self.always(server_groups=[])),
            ("/compute/v2.1/os-availability-zone", ["GET"], self.zones),
            ("/volume/", ["GET"], self.cinder),
            ("/volume/v3/", ["GET"], self.cinder),
            (f"/volume/v3/{PROJECT}/types", ["GET"], self.list_types),
            (f"/volume/v3/{PROJECT}/types/default", ["GET"], self.default_type),
            (f"/volume/v3/{PROJECT}/volumes/detail", ["GET"], self.list_volumes),
            (f"/volume/v3/{PROJECT}/volumes/<volume>", ["GET"], self.show_volume),
            (f"/volume/v3/{PROJECT}/snapshots/detail", ["GET"], self.list_snapshots),
            (f"/volume/v3/{PROJECT}/os-volume-transfer/detail", ["GET"], self.always(transfers=[])),
            (f"/volume/v3/{PROJECT}/limits", ["GET"], self.volume_limits),
            ("/image/", ["GET"], self.glance),
            ("/image/v2/images", ["GET"], self.always(images=[])),
            ("/image/v2/metadefs/namespaces", ["GET"], self.namespaces),
            ("/image/v2/schemas/<path:noun>", ["GET"], self.always(name="schema", properties={})),
            ("/network/", ["GET"], self.neutron),
            ("/network/v2.0/networks", ["GET"], self.networks),
            ("/network/v2.0/subnets", ["GET"], self.subnets),
            ("/network/v2.0/<noun>", ["GET"], self.none_of),
            ("/placement/allocation_candidates", ["GET"], self.candidates),
            ("/network/v2.0/quotas/<project>", ["GET"], self.always(quota={})),
        ):
            for method in methods:
                self.route(method, path, answer)

    def serve(self, request):
        if request.method != "GET" and not request.path.startswith("/identity"):
            self.asked.append((request.method, request.path, request.json))
        return super().serve(request)

    @staticmethod
    def always(**content):
        return lambda request, **names: (content, 200, {})

    # Nova

    def nova(self, request):
        links = [{"rel": "self", "href": f"{self.url}/compute/v2.1/"}]
        version = {"id": "v2.1", "status": "CURRENT", "version": "2.102", "min_version": "2.1",
                   "updated": "2013-07-23T11:33:21Z", "links": links}  # fmt: skip
        if request.path.rstrip("/").endswith("v2.1"):
            return {"version": version}, 200, {}
        return {"versions": [version]}, 200, {}

    def create_servers(self, request):
        if self.refusal:
            return {"badRequest": {"code": 400, "message": self.refusal}}, 400, {}
        wanted = request.json["server"]
        count = wanted["max_count"]
        for index in range(count):
            name = wanted["name"] + (f"-{index + 1}" if count > 1 else "")
            self.servers.append(self._server(name, "BUILD"))
        made = {"id": self.servers[-1]["id"], "links": [], "adminPass": "none"}
        return {"server": made}, 202, {}

    def list_servers(self, request):
        shown = [dict(one) for one in self.servers]
        for one in self.servers:
            one |= {"status": "ACTIVE", "OS-EXT-STS:power_state": 1, "OS-EXT-STS:task_state": None,
                    "OS-EXT-STS:vm_state": "active"}  # fmt: skip
        return {"servers": shown}, 200, {}

    def show_server(self, request, server):
        found = next((one for one in self.servers if one["id"] == server), None)
        if found is None:
            return {"itemNotFound": {"code": 404, "message": "no such server"}}, 404, {}
        return {"server": found}, 200, {}

    @staticmethod
    def _server(name, status):
        return {
            "id": number(f"server {name}"), "name": name, "status": status, "addresses": {},
            "tenant_id": PROJECT, "user_id": "id-of-demo", "created": MADE, "updated": MADE,
            "image": "", "flavor": {"original_name": "m1.small", "ram": 2048, "disk": 0, "vcpus": 1,
                                    "ephemeral": 0, "swap": 0, "extra_specs": {}},
            "OS-EXT-STS:task_state": "spawning", "OS-EXT-STS:vm_state": "building",
            "OS-EXT-STS:power_state": 0, "OS-EXT-AZ:availability_zone": "nova", "locked": False,
            "key_name": None, "metadata": {}, "security_groups": [], "links": [], "hostId": "h",
            "os-extended-volumes:volumes_attached": [], "config_drive": "",
        }  # fmt: skip

    def flavors(self, request):
        return {"flavors": [_flavor("m1.small")]}, 200, {}

    def flavor(self, request, flavor):
        return {"flavor": _flavor("m1.small")}, 200, {}

    def limits(self, request):
        most = {"maxTotalInstances": self.quota, "maxTotalCores": 40, "maxTotalRAMSize": 102400}
        used = {"totalInstancesUsed": len(self.servers), "totalCoresUsed": len(self.servers),
                "totalRAMUsed": 2048 * len(self.servers)}  # fmt: skip
        other = {"maxServerMeta": 128, "maxPersonality": 5, "maxImageMeta": 128,
                 "maxPersonalitySize": 10240, "maxTotalKeypairs": 100, "maxServerGroups": 10,
                 "maxServerGroupMembers": 10}  # fmt: skip
        return {"limits": {"rate": [], "absolute": most | used | other}}, 200, {}

    def zones(self, request):
        zone = {"zoneName": "nova", "zoneState": {"available": True}, "hosts": None}
        return {"availabilityZoneInfo": [zone]}, 200, {}

    # Cinder

    def cinder(self, request):
        links = [{"rel": "self", "href": f"{self.url}/volume/v3/"}]
        version = {"id": "v3.0", "status": "CURRENT", "version": "3.71", "min_version": "3.0",
                   "updated": "2026-01-01T00:00:00Z", "links": links}  # fmt: skip
        return {"versions": [version]}, 200, {}

    def list_types(self, request):
        found = [{"id": number(name), "name": name, "is_public": True, "description": None,
                  "extra_specs": {}} for name in self.types]  # fmt: skip
        return {"volume_types": found}, 200, {}

    def default_type(self, request):
        return {"volume_type": {"id": number("lvm"), "name": "lvm", "extra_specs": {}}}, 200, {}

    def list_volumes(self, request):
        return {"volumes": [_volume(name, size) for name, size in self.snapshots.items()]}, 200, {}

    def show_volume(self, request, volume):
        found = [_volume(name, size) for name, size in self.snapshots.items()]
        return {"volume": next(one for one in found if one["id"] == volume)}, 200, {}

    def list_snapshots(self, request):
        found = [
            {"id": snapshot(name), "name": name, "description": "", "status": "available",
             "size": size, "volume_id": number(f"volume {name}"), "created_at": MADE,
             "updated_at": MADE, "metadata": {}, "group_snapshot_id": None,
             "os-extended-snapshot-attributes:progress": "100%",
             "os-extended-snapshot-attributes:project_id": PROJECT}
            for name, size in self.snapshots.items()
        ]  # fmt: skip
        return {"snapshots": found}, 200, {}

    def volume_limits(self, request):
        most = {"maxTotalVolumes": 10, "maxTotalVolumeGigabytes": 1000, "maxTotalSnapshots": 10,
                "maxTotalBackups": 10, "maxTotalBackupGigabytes": 1000}  # fmt: skip
        used = {"totalVolumesUsed": 2, "totalGigabytesUsed": 48, "totalSnapshotsUsed": 2,
                "totalBackupsUsed": 0, "totalBackupGigabytesUsed": 0}  # fmt: skip
        return {"limits": {"rate": [], "absolute": most | used}}, 200, {}

    # Glance and Neutron

    def glance(self, request):
        links = [{"rel": "self", "href": f"{self.url}/image/v2/"}]
        return {"versions": [{"id": "v2.15", "status": "CURRENT", "links": links}]}, 300, {}

    def namespaces(self, request):
        space = {"namespace": "OS::Test", "display_name": "Test", "description": "", "owner": "o",
                 "visibility": "public", "resource_type_associations": []}  # fmt: skip
        return {"namespaces": [space]}, 200, {}

    def neutron(self, request):
        links = [{"rel": "self", "href": f"{self.url}/network/v2.0/"}]
        return {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}, 200, {}

    def networks(self, request):
        network = {"id": number("network"), "name": "net", "tenant_id": PROJECT, "shared": False,
                   "project_id": PROJECT, "status": "ACTIVE", "admin_state_up": True,
                   "subnets": [number("subnet")], "router:external": False,
                   "availability_zones": [], "mtu": 1500}  # fmt: skip
        is_wanted = request.args.get("shared", "False") == "False" and request.args.get(
            "router:external", "False"
        ) in ("False", "false")
        return {"networks": [network] if is_wanted else []}, 200, {}

    def subnets(self, request):
        subnet = {"id": number("subnet"), "name": "subnet", "network_id": number("network"),
                  "tenant_id": PROJECT, "ip_version": 4, "cidr": "192.0.2.0/24",
                  "gateway_ip": "192.0.2.1", "enable_dhcp": True, "allocation_pools": [],
                  "dns_nameservers": [], "host_routes": []}  # fmt: skip
        return {"subnets": [subnet]}, 200, {}

    def candidates(self, request):
        _, roles = self.keystone.users[request.headers["X-Auth-Token"]]
        if "admin" not in roles:
            return {"errors": [{"status": 403, "title": "Forbidden"}]}, 403, {}
        assert request.args["resources"] == "DISK_GB:1"
        assert request.args["required"] == "CUSTOM_VIRTMAN"
        rooms = {"capacity": 100, "used": 80}
        summaries = {number(node): {"resources": {"DISK_GB": rooms}} for node in "ab"}
        return {"allocation_requests": [], "provider_summaries": summaries}, 200, {}

    def none_of(self, request, noun):
        return {noun.replace("-", "_"): []}, 200, {}


def snapshot(name):
    """Return the id of a snapshot."""
    return number(f"snapshot {name}")


def _flavor(name):
    return {"id": number(name), "name": name, "ram": 2048, "disk": 20, "vcpus": 1, "swap": 0,
            "OS-FLV-EXT-DATA:ephemeral": 0, "OS-FLV-DISABLED:disabled": False,
            "os-flavor-access:is_public": True, "rxtx_factor": 1.0, "links": [],
            "extra_specs": {}, "description": None}  # fmt: skip


def _volume(name, size):
    return {"id": number(f"volume {name}"), "name": f"volume of {name}", "size": size,
            "status": "available", "bootable": "true", "attachments": [], "metadata": {},
            "description": "", "availability_zone": "nova", "created_at": MADE,
            "updated_at": MADE, "volume_type": "lvm", "encrypted": False, "multiattach": False,
            "snapshot_id": None, "source_volid": None, "user_id": "id-of-demo",
            "consistencygroup_id": None, "group_id": None, "replication_status": None,
            "volume_image_metadata": {}}  # fmt: skip
