"""The programs: ``virtman-agent`` and ``virtman``."""
