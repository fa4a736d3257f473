"""How Volt's state lies in the database."""
