"""What a bed's cloud has from the beginning: a program of the environment of the services.

python content.py volume     flavors, volume types, an empty volume; prints the volume's id
python content.py snapshot   once the volume holds the guest's disk: a snapshot of it
"""

import sys
import time

import openstack

DEADLINE = 120.0


def volume(cloud: openstack.connection.Connection, name: str) -> None:
    """Make what servers are made of, and the volume of which the snapshot will be."""
    for flavor, memory in (("guest", 96), ("guest.large", 128)):
        if not cloud.compute.find_flavor(flavor):
            cloud.compute.create_flavor(name=flavor, ram=memory, vcpus=1, disk=1)
    storage = cloud.block_storage
    for kind, more in (("lvm", {}), ("virtman", {"multiattach": "<is> True"})):
        if not storage.find_type(kind):
            specifications = {"volume_backend_name": "lvm"} | more
            storage.create_type(name=kind, extra_specs=specifications)
    made = storage.create_volume(size=1, name=name, volume_type="lvm")
    wait(storage, storage.get_volume, made.id)
    storage.set_volume_bootable_status(made, True)
    print(made.id)


def snapshot(cloud: openstack.connection.Connection, name: str) -> None:
    """Make the snapshot."""
    storage = cloud.block_storage
    made = storage.create_snapshot(volume_id=storage.find_volume(name).id, name=name)
    wait(storage, storage.get_snapshot, made.id)


def wait(storage, look, what: str) -> None:
    """Return once it is available; else say what Cinder's users are told."""
    end = time.monotonic() + DEADLINE
    while (status := look(what).status) != "available":
        if status.startswith("error") or time.monotonic() > end:
            said = storage.get("/messages", microversion="3.5").json()["messages"]
            sys.exit(f"{what} is {status}: {[one['user_message'] for one in said]}")
        time.sleep(0.3)


if __name__ == "__main__":
    {"volume": volume, "snapshot": snapshot}[sys.argv[1]](openstack.connect(), sys.argv[2])
