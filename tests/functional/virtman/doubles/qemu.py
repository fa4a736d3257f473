"""A QEMU as its monitor shows it: a VM that runs, stands still once it was migrated, and goes on.

What it answers of its hardware is what QEMU 10.0 answers of the lab's guest.
"""

import json
from pathlib import Path
from socket import SocketIO

from tests.functional.virtman.doubles.listening import Listening

RAM = "pc.ram"
CPU = "/machine/unattached/device[0]"
DISK, CARD = "virtio-blk-pci", "virtio-net-pci"
CONTROLLER, PORT = "virtio-serial-pci", "virtserialport"
_PERIPHERAL = "/machine/peripheral-anon"
_BOARD = ((0, 0x1237, 0x0600), (1, 0x7000, 0x0601))


class Qemu(Listening):
    """Answers one after the other at a socket, and keeps what it was told."""

    def __init__(self, path: Path, disk: str, devices: tuple[str, ...] = (DISK, "vmgenid")) -> None:
        self.disk = disk
        self.devices = devices
        self.version = (10, 0)
        self.status = "running"
        self.told: list[str] = []
        self.channel = "unix:/nowhere/agent,server=on"  # where the guest agent's port is
        self.is_agent_there = True
        self.memory = "ram"  # or "file"
        self.port = "org.qemu.guest_agent.0"
        super().__init__(path)

    def _talk(self, file: SocketIO) -> None:
        file.write(b'{"QMP": {}}\n')
        for line in file:
            asked = json.loads(line)
            file.write(json.dumps(self._answer(**asked)).encode() + b"\n")

    def _answer(self, execute: str, arguments: dict[str, object]) -> dict[str, object]:
        self.told.append(execute)
        name = execute.replace("-", "_")
        if not hasattr(self, f"_do_{name}"):
            return {"return": {}}
        try:
            return {"return": getattr(self, f"_do_{name}")(**arguments)}
        except KeyError as err:
            return {"error": {"class": "GenericError", "desc": f"no {err}"}}

    def _do_cont(self) -> object:
        self.status = "running"
        return {}

    def _do_query_status(self) -> object:
        return {"status": self.status}

    def _do_query_migrate(self) -> object:
        return {}

    def _do_query_version(self) -> object:
        return {"qemu": {"major": self.version[0], "minor": self.version[1], "micro": 2}}

    def _do_query_cpus_fast(self) -> object:
        return [{"qom-path": CPU}]

    def _do_query_memdev(self) -> object:
        return [{"id": RAM, "size": 96 << 20}]

    def _do_query_kvm(self) -> object:
        return {"enabled": False, "present": True}

    def _do_query_block(self) -> object:
        return [{"inserted": {"file": self.disk}}, {"device": "empty"}]

    def _do_query_chardev(self) -> object:
        return [
            {"label": "qmp", "frontend-open": True, "filename": "unix:/qmp"},
            {"label": "ga", "frontend-open": self.is_agent_there, "filename": self.channel},
        ]

    def _do_query_pci(self) -> object:
        found = [(0x8086, *one) for one in _BOARD]
        pci = [one for one in self.devices if one not in ("vmgenid", "isa-serial", PORT)]
        found += [(0x1AF4, 2 + n, 0x1001, 0x0100) for n in range(len(pci))]
        devices = [
            {"slot": slot, "function": 0, "class_info": {"class": kind},
             "id": {"vendor": vendor, "device": device}}
            for vendor, slot, device, kind in found
        ]  # fmt: skip
        return [{"bus": 0, "devices": devices}]

    def _do_qom_list(self, path: str) -> object:
        kinds = {
            _PERIPHERAL: [(f"device[{n}]", one) for n, one in enumerate(self.devices)],
            "/machine/unattached": [("device[9]", "isa-serial"), ("device[2]", "i440FX")],
        }
        return [{"name": "type", "type": "string"}] + [
            {"name": name, "type": f"child<{kind}>"} for name, kind in kinds.get(path, ())
        ]

    def _do_qom_get(self, path: str, property: str) -> object:
        if path.startswith(_PERIPHERAL):
            return {
                "addr": 16 + 8 * int(path[-2]), "serial": "vm1", "mac": "52:54:00:00:00:01",
                "name": self.port, "nr": 1, "chardev": "ga",
            }[property]  # fmt: skip
        types = {CPU: "qemu64-x86_64-cpu", f"/objects/{RAM}": f"memory-backend-{self.memory}"}
        return {
            "type": types.get(path, "pc-i440fx-10.0-machine"),
            "feature-words": [{"cpuid-register": "EDX", "features": 126614525}],
            "smp": {"cpus": 1, "maxcpus": 1, "sockets": 1, "cores": 1, "threads": 1, "dies": 1},
            "memory-backend": f"/objects/{RAM}",
            "x-use-canonical-path-for-ramblock-id": False,
        }[property]
