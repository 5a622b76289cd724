"""incidents are found by node, by any symptom and by time."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INDEXES = (["run", "detected_at", "id"], ["node", "detected_at", "id"], ["detected_at", "id"])


def upgrade() -> None:
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.add_column(sa.Column("symptoms", sa.Text(), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("node", sa.String(length=128), nullable=False, server_default=""))
    _derive()
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.alter_column("symptoms", existing_type=sa.Text(), existing_nullable=False, server_default=None)
        batch_op.alter_column("node", existing_type=sa.String(length=128), existing_nullable=False, server_default=None)
        for columns in INDEXES:
            batch_op.create_index(batch_op.f(f"ix_incidents_{'_'.join(columns)}"), columns, unique=False)


def downgrade() -> None:
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        for columns in INDEXES:
            batch_op.drop_index(batch_op.f(f"ix_incidents_{'_'.join(columns)}"))
        batch_op.drop_column("node")
        batch_op.drop_column("symptoms")


def _derive() -> None:
    """What is searched by is derived from the document, of the rows that are there too."""
    column = sa.column
    incidents = sa.table("incidents", column("id"), column("document"), column("symptoms"), column("node"))
    connection = op.get_bind()
    for identity, document in connection.execute(sa.select(incidents.c.id, incidents.c.document)).all():
        incident = json.loads(document)
        found = {"symptoms": f" {' '.join(incident['symptoms'])} ", "node": incident.get("node", "")[:128]}
        connection.execute(sa.update(incidents).where(incidents.c.id == identity).values(**found))
