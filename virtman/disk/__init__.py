"""Where what VMs write lives."""
