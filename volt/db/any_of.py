"""How a statement asks for the rows of many hosts at once."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Dialect,
    Text,
    and_,
    any_,
    bindparam,
    func,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType, TypeDecorator

_LINE_END: ColumnElement[str] = literal_column("chr(10)")


class _Joined(TypeDecorator[Collection[str]]):
    """Names as the lines of one text: psycopg takes its time with arrays."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Collection[str] | None, dialect: Dialect) -> str:
        return "\n".join(value or ())


class among(FunctionElement[bool]):  # it reads as one of SQL's own words
    """True of rows whose ``column`` is one of the names in the statement's parameter ``names``.

    PostgreSQL gets them as one value. Where databases know no arrays it becomes ``IN`` with a
    parameter for each name, which SQLAlchemy writes anew for each number of names.
    """

    type = NullType()  # type: ignore[assignment]  # a boolean is asked whether it is 1
    inherit_cache = True
    name = "among"

    def __init__(self, column: ColumnElement[str], names: str) -> None:
        super().__init__(column, bindparam(names, expanding=True))


class paired(FunctionElement[bool]):  # it reads as one of SQL's own words
    """True of rows of these images and hosts: pairs of the parameters ``images`` and ``hosts``.

    Both have a name for each pair. Where databases know no arrays, it is also true of other pairs
    of the same names: a query of pairs would be another one for each number of them.
    """

    type = NullType()  # type: ignore[assignment]  # a boolean is asked whether it is 1
    inherit_cache = True
    name = "paired"

    def __init__(self, image: ColumnElement[str], host: ColumnElement[str]) -> None:
        names: list[Any] = [bindparam(name, expanding=True) for name in ("images", "hosts")]
        super().__init__(image, host, *names)


@compiles(among)
def _in(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, names = element.clauses
    return compiler.process(column.in_(names), **options)


@compiles(among, "postgresql")
def _any(element: among, compiler: SQLCompiler, **options: Any) -> str:
    column, names = element.clauses
    return compiler.process(column == any_(_array(names)), **options)


@compiles(paired)
def _in_both(element: paired, compiler: SQLCompiler, **options: Any) -> str:
    image, host, images, hosts = element.clauses
    return compiler.process(and_(image.in_(images), host.in_(hosts)), **options)


@compiles(paired, "postgresql")
def _in_pairs(element: paired, compiler: SQLCompiler, **options: Any) -> str:
    image, host, images, hosts = element.clauses
    pairs: Any = select(literal_column("*")).select_from(func.unnest(_array(images), _array(hosts)))
    return compiler.process(tuple_(image, host).in_(pairs), **options)


def _array(names: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.string_to_array(bindparam(names.key, type_=_Joined), _LINE_END)
