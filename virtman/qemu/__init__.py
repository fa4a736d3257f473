"""QEMU: what a running VM is, how its memory becomes a file, and how it goes on from one."""
