"""How volt-manage gives tokens out and takes them back."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import click
from oslo_config import cfg

from volt.cmd import reported
from volt.cmd.table import table
from volt.db import upgrade
from volt.db.tokens import Token, Tokens
from volt.errors import TokenInvalid
from volt.model.names import check_name

ROLES = ("host", "operator", "reader")


@click.group()
def token() -> None:
    """Tokens, by which Volt knows who asks."""


@token.command()
@click.option("--role", type=click.Choice(ROLES), required=True, help="What it allows.")
@click.option(
    "--host", "hosts", metavar="NAME", multiple=True, help="Host whose token of role host it is."
)
@click.option(
    "--days", type=click.IntRange(1, 36500), help="Days until it expires; default: never."
)
@click.option("--json", "as_json", is_flag=True, help="Print names, roles and times too, as JSON.")
@click.pass_obj
def create(
    options: cfg.ConfigOpts, role: str, hosts: tuple[str, ...], days: int | None, as_json: bool
) -> None:
    """Create a token and print it. It cannot be shown again.

    Role host takes one or more --host. Each gets a token, in that order.
    """
    now = datetime.now(UTC)
    with reported():
        if (role == "host") != bool(hosts):
            raise TokenInvalid("role host needs --host, and no other role takes it")
        names: list[str | None] = [check_name("host", host) for host in hosts] or [None]
        expires_at = now + timedelta(days=days) if days else None
        made = _tokens(options).create(role, names, now, expires_at)
    if as_json:
        click.echo(_json([_shown(known) | {"token": secret} for known, secret in made]))
        return
    for _, secret in made:
        click.echo(secret)


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def index(options: cfg.ConfigOpts, as_json: bool) -> None:
    """List the names, roles and times of all tokens.

    Volt does not keep the tokens themselves.
    """
    with reported():
        tokens = [_shown(each) for each in _tokens(options).all()]
    if as_json:
        click.echo(_json(tokens))
        return
    columns = ("name", "role", "host", "created_at", "expires_at")
    rows = [[each[column] or "-" for column in columns] for each in tokens]
    table([column.upper() for column in columns], rows)


@token.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.pass_obj
def revoke(options: cfg.ConfigOpts, names: tuple[str, ...]) -> None:
    """Revoke tokens. Volt refuses them within 5 seconds."""
    with reported():
        tokens = _tokens(options)
        for name in names:
            tokens.revoke(name)


def _tokens(options: cfg.ConfigOpts) -> Tokens:
    return Tokens(upgrade.opened(options.database.connection, options.database.busy_timeout))


def _shown(token: Token) -> dict[str, str | None]:
    times = {
        name: time.strftime("%Y-%m-%dT%H:%M:%SZ") if time else None
        for name, time in (("created_at", token.created_at), ("expires_at", token.expires_at))
    }
    return asdict(token) | times


def _json(content: object) -> str:
    return json.dumps(content, indent=2)
