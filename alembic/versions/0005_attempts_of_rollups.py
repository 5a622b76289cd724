"""attempts of rollups."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("rollups", schema=None) as batch_op:
        batch_op.add_column(sa.Column("attempt", sa.String(length=128), nullable=False, server_default=""))
    op.execute(
        "UPDATE rollups SET attempt = coalesce((SELECT attempt FROM observations"
        " WHERE observations.run = rollups.run AND observations.sequence = rollups.first_sequence), '')"
    )


def downgrade() -> None:
    with op.batch_alter_table("rollups", schema=None) as batch_op:
        batch_op.drop_column("attempt")
