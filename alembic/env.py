"""Runs migrations on the daemon's connection, or on SENTINEL_DATABASE_URL when called by hand."""

import os

from alembic import context
from sqlalchemy import Connection

from sentinel.store.session import open_database
from sentinel.store.tables import metadata


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        render_as_batch=True,
        compare_type=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with open_database(os.environ.get("SENTINEL_DATABASE_URL", "sqlite:///sentinel.db")).transaction() as own:
        run(own)
