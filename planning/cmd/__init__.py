"""The commands ``virtman-model`` and ``virtman-simulate``."""
