"""Walks through the commands of a program."""

import click


def commands(command, *words):
    """Walk through a command and all below it; return them with their names."""
    found = [(words, command)]
    for name, below in commands_of(command).items():
        found += commands(below, *words, name)
    return found


def commands_of(command):
    """Return the commands of a group by their names; a command that is none has none."""
    names = command.list_commands(None) if isinstance(command, click.Group) else ()
    return {name: command.get_command(None, name) for name in names}
