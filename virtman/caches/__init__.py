"""Cache drivers, one a file: each makes what was read once stay on a local device."""
