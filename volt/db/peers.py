"""How the authority of agents is kept, and which hosts have its certificates."""

from datetime import datetime

from sqlalchemy import BigInteger, Engine, String, Text, delete
from sqlalchemy.orm import Mapped, mapped_column, sessionmaker

from volt.ca import Authority
from volt.db.engine import for_writing, retried
from volt.db.models import Base, Name
from volt.model.hosts import Listener

_ONLY = "agents"


class AuthorityRow(Base):
    """The authority: there is one row at most."""

    __tablename__ = "authorities"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    certificate: Mapped[str] = mapped_column(Text)
    key: Mapped[str] = mapped_column("private_key", Text)
    created_at: Mapped[datetime]


class PeerRow(Base):
    """A host that has a certificate, and where its agent listens."""

    __tablename__ = "peers"

    host: Mapped[str] = mapped_column(Name, primary_key=True)
    ip: Mapped[str] = mapped_column(String(45))
    port: Mapped[int] = mapped_column(BigInteger)
    expires_at: Mapped[datetime]


class PeerRows:
    """Authority and hosts in the database; safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._reading = sessionmaker(engine)
        self._writing = sessionmaker(for_writing(engine))

    @retried
    def authority(self) -> Authority | None:
        """Return the authority, if there is one yet."""
        with self._reading.begin() as session:
            row = session.get(AuthorityRow, _ONLY)
            return None if row is None else Authority(row.certificate, row.key)

    @retried
    def found(self, new: Authority, now: datetime) -> Authority:
        """Store a new authority; return the one that there is, if another was first."""
        with self._writing.begin() as session:
            row = session.get(AuthorityRow, _ONLY)
            if row is None:
                row = AuthorityRow(
                    name=_ONLY, certificate=new.certificate, key=new.key, created_at=now
                )
                session.add(row)
            return Authority(row.certificate, row.key)

    @retried
    def enrol(self, listener: Listener, expires_at: datetime) -> None:
        """Note that a host has a certificate until then."""
        with self._writing.begin() as session:
            session.merge(
                PeerRow(
                    host=listener.host, ip=listener.ip, port=listener.port, expires_at=expires_at
                )
            )

    @retried
    def listener(self, host: str, now: datetime) -> Listener | None:
        """Return where a host listens whose certificate is good."""
        with self._reading.begin() as session:
            row = session.get(PeerRow, host)
            if row is None or row.expires_at <= now:
                return None
            return Listener(row.host, row.ip, row.port)

    @retried
    def forget(self, host: str) -> None:
        """Drop a host; that there is none is fine."""
        with self._writing.begin() as session:
            session.execute(delete(PeerRow).where(PeerRow.host == host))
