"""alerts with a shared cause are sent together; a heartbeat proves that the database can be written."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "heartbeats",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeats")),
    )
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("topic", sa.String(length=64), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("batch", sa.String(length=200), nullable=False, server_default=""))
    with op.batch_alter_table("actions", schema=None) as batch_op:
        for name, length in (("topic", 64), ("batch", 200)):
            batch_op.alter_column(
                name, existing_type=sa.String(length=length), existing_nullable=False, server_default=None
            )
        batch_op.create_index(batch_op.f("ix_actions_topic_planned_at"), ["topic", "planned_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_actions_batch"), ["batch"], unique=False)


def downgrade() -> None:
    op.drop_table("heartbeats")
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_actions_batch"))
        batch_op.drop_index(batch_op.f("ix_actions_topic_planned_at"))
        batch_op.drop_column("batch")
        batch_op.drop_column("topic")
