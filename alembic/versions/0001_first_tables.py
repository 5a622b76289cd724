"""first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("incident", sa.String(length=200), nullable=False),
        sa.Column("executor", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("planned_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_actions")),
    )
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_actions_executor_state_due_at"), ["executor", "state", "due_at"], unique=False
        )
        batch_op.create_index(batch_op.f("ix_actions_incident"), ["incident"], unique=False)

    op.create_table(
        "checkpoints",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("segment", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("changed_sequence", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "id", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("incident", sa.String(length=200), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("rung", sa.String(length=16), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_decisions_incident"), ["incident"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_decisions_run_sequence_ordinal"), ["run", "sequence", "ordinal"], unique=False
        )

    op.create_table(
        "findings",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("symptom", sa.String(length=64), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "sequence", "ordinal", name=op.f("pk_findings")),
    )
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(length=200), nullable=False),
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("opened_sequence", sa.BigInteger(), nullable=False),
        sa.Column("changed_sequence", sa.BigInteger(), nullable=False),
        sa.Column("detected_at", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("symptom", sa.String(length=64), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incidents")),
    )
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_run_opened_sequence"), ["run", "opened_sequence"], unique=False)
        batch_op.create_index(batch_op.f("ix_incidents_state_detected_at"), ["state", "detected_at"], unique=False)

    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "observations",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("attempt", sa.String(length=128), nullable=False),
        sa.Column("sender", sa.String(length=128), nullable=False),
        sa.Column("backlog", sa.Boolean(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("segment", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "sequence", name=op.f("pk_observations")),
    )
    with op.batch_alter_table("observations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_observations_run_kind_step"), ["run", "kind", "step"], unique=False)

    op.create_table(
        "rollups",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("series", sa.String(length=128), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("first_sequence", sa.BigInteger(), nullable=False),
        sa.Column("last_sequence", sa.BigInteger(), nullable=False),
        sa.Column("segment", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("nonfinite", sa.Integer(), nullable=False),
        sa.Column("minimum", sa.Double(), nullable=True),
        sa.Column("maximum", sa.Double(), nullable=True),
        sa.Column("total", sa.Double(), nullable=False),
        sa.Column("last", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("run", "series", "level", "first_sequence", name=op.f("pk_rollups")),
    )
    op.create_table(
        "runs",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_runs_last_at"), ["last_at"], unique=False)

    op.create_table(
        "senders",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("attempt", sa.String(length=128), nullable=False),
        sa.Column("sender", sa.String(length=128), nullable=False),
        sa.Column("next_counter", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "attempt", "sender", name=op.f("pk_senders")),
    )
    op.create_table(
        "snapshots",
        sa.Column("run", sa.String(length=128), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(length=16), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "sequence", name=op.f("pk_snapshots")),
    )


def downgrade() -> None:
    op.drop_table("snapshots")
    op.drop_table("senders")
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_runs_last_at"))

    op.drop_table("runs")
    op.drop_table("rollups")
    with op.batch_alter_table("observations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_observations_run_kind_step"))

    op.drop_table("leases")
    op.drop_table("observations")
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_incidents_state_detected_at"))
        batch_op.drop_index(batch_op.f("ix_incidents_run_opened_sequence"))

    op.drop_table("incidents")
    op.drop_table("findings")
    with op.batch_alter_table("decisions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_decisions_run_sequence_ordinal"))
        batch_op.drop_index(batch_op.f("ix_decisions_incident"))

    op.drop_table("decisions")
    op.drop_table("checkpoints")
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_actions_incident"))
        batch_op.drop_index(batch_op.f("ix_actions_executor_state_due_at"))

    op.drop_table("actions")
