"""Alembic's entry point: runs on the connection that `lab.store` hands over, inside of its transaction."""

from alembic import context

from lab.tables import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
