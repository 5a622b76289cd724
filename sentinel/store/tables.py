"""The tables.

What was said or decided is kept whole, as JSON text in ``document`` or ``payload``; the other columns are derived from
it to be searched and sorted by, and are NULL where a number is not finite.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    }
)

_NAME = String(128)
_ID = String(200)

observations = Table(
    "observations",
    metadata,
    Column("run", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("received_at", Double, nullable=False),
    Column("attempt", _NAME, nullable=False),
    Column("sender", _NAME, nullable=False),
    Column("backlog", Boolean, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("segment", BigInteger),
    Column("step", BigInteger),
    Column("payload", Text, nullable=False),
    PrimaryKeyConstraint("run", "sequence"),
    Index(None, "run", "kind", "step"),
)
"""The log. The primary key is the order in which the pipeline took the entries."""

senders = Table(
    "senders",
    metadata,
    Column("run", _NAME, nullable=False),
    Column("attempt", _NAME, nullable=False),
    Column("sender", _NAME, nullable=False),
    Column("next_counter", BigInteger, nullable=False),
    PrimaryKeyConstraint("run", "attempt", "sender"),
)
"""How far each sender was heard: what comes again is known by its number."""

runs = Table(
    "runs",
    metadata,
    Column("run", _NAME, primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("last_at", Double, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("document", Text, nullable=False),
    Index(None, "last_at"),
)

findings = Table(
    "findings",
    metadata,
    Column("run", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("symptom", String(64), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    PrimaryKeyConstraint("run", "sequence", "ordinal"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("run", _NAME, nullable=False),
    Column("opened_sequence", BigInteger, nullable=False),
    Column("changed_sequence", BigInteger, nullable=False),
    Column("detected_at", Double, nullable=False),
    Column("state", String(16), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("symptom", String(64), nullable=False),
    Column("symptoms", Text, nullable=False),
    Column("node", _NAME, nullable=False),
    Column("document", Text, nullable=False),
    Index(None, "run", "opened_sequence"),
    Index(None, "run", "detected_at", "id"),
    Index(None, "node", "detected_at", "id"),
    Index(None, "detected_at", "id"),
    Index(None, "state", "detected_at"),
)
"""``symptoms`` are all of an incident's, each between blanks; a page reads as many rows as it shows, newest first."""

decisions = Table(
    "decisions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("run", _NAME, nullable=False),
    Column("incident", _ID, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("rung", String(16), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("document", Text, nullable=False),
    Index(None, "run", "sequence", "ordinal"),
    Index(None, "incident"),
)

actions = Table(
    "actions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("run", _NAME, nullable=False),
    Column("incident", _ID, nullable=False),
    Column("executor", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("planned_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
    Column("topic", String(64), nullable=False),
    Column("batch", _ID, nullable=False),
    Column("document", Text, nullable=False),
    Index(None, "executor", "state", "due_at"),
    Index(None, "incident"),
    Index(None, "topic", "planned_at"),
    Index(None, "batch"),
)
"""The outbox: written in the transaction of the decision, so that no decision is without its action."""

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run", _NAME, nullable=False),
    Column("id", _NAME, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("segment", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("changed_sequence", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    PrimaryKeyConstraint("run", "id"),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("run", _NAME, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("version", String(16), nullable=False),
    Column("document", Text, nullable=False),
    PrimaryKeyConstraint("run", "sequence"),
)
"""The pipeline's state after an entry: a restart folds only what came later."""

rollups = Table(
    "rollups",
    metadata,
    Column("run", _NAME, nullable=False),
    Column("series", String(128), nullable=False),
    Column("level", Integer, nullable=False),
    Column("first_sequence", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("segment", BigInteger, nullable=False),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("nonfinite", Integer, nullable=False),
    Column("minimum", Double),
    Column("maximum", Double),
    Column("total", Double, nullable=False),
    Column("last", Double),
    Column("attempt", _NAME, nullable=False, server_default=""),
    PrimaryKeyConstraint("run", "series", "level", "first_sequence"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("role", String(16), nullable=False),
    Column("runs", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("revoked_at", Double),
)
"""What callers show, hashed: see store/tokens.py."""

holds = Table(
    "holds",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("is_held", Boolean, nullable=False),
    Column("by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", Double, nullable=False),
)
"""The hold of all runs, of those too that are not known yet: see store/fleet_hold.py."""

heartbeats = Table(
    "heartbeats",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("at", Double, nullable=False),
)
"""Written to prove that it can be: a transaction without a change would succeed on a full disk."""

leases = Table(
    "leases",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", Double, nullable=False),
)
"""Who may write: see store/lease.py."""
