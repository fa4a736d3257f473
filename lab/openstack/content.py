"""What a bed's cloud has from the beginning: a program of the environment of the services.

python content.py volume     flavors, volume types, an empty volume; prints the volume's id
python content.py snapshot   once the volume holds the guest's disk: a snapshot of it
"""

import sys
import time

import openstack

SNAPSHOT = "guest"
DEADLINE = 120.0


def volume(cloud: openstack.connection.Connection) -> None:
    """Make what servers are made of, and the volume of which the snapshot will be."""
    for name, memory in (("guest", 96), ("guest.large", 128)):
        if not cloud.compute.find_flavor(name):
            cloud.compute.create_flavor(name=name, ram=memory, vcpus=1, disk=1)
    storage = cloud.block_storage
    for name, more in (("lvm", {}), ("virtman", {"multiattach": "<is> True"})):
        if not storage.find_type(name):
            specifications = {"volume_backend_name": "lvm"} | more
            storage.create_type(name=name, extra_specs=specifications)
    made = storage.create_volume(size=1, name=SNAPSHOT, volume_type="lvm")
    wait(storage.get_volume, made.id)
    storage.set_volume_bootable_status(made, True)
    print(made.id)


def snapshot(cloud: openstack.connection.Connection) -> None:
    """Make the snapshot."""
    storage = cloud.block_storage
    made = storage.create_snapshot(volume_id=storage.find_volume(SNAPSHOT).id, name=SNAPSHOT)
    wait(storage.get_snapshot, made.id)


def wait(look, what: str) -> None:
    """Return once it is available."""
    end = time.monotonic() + DEADLINE
    while (status := look(what).status) != "available":
        if status.startswith("error") or time.monotonic() > end:
            sys.exit(f"{what} is {status}")
        time.sleep(0.3)


if __name__ == "__main__":
    {"volume": volume, "snapshot": snapshot}[sys.argv[1]](openstack.connect())
