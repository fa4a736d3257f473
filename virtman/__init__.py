"""The VirtMan agent: devices for the VMs of one node, over images that nodes feed to each other."""
