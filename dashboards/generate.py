"""Writes the dashboards as JSON, as Grafana's provisioning and its import page take them."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.fleet import fleet_board
from dashboards.run import run_board

FOLDER = Path(__file__).parent


def texts() -> dict[str, str]:
    """The content of each file by its name."""
    return {"run.json": _text(run_board()), "fleet.json": _text(fleet_board())}


def _text(builder: Dashboard) -> str:
    board = builder.build()
    for number, panel in enumerate(board.panels or [], start=1):
        panel.id_val = number  # else Grafana numbers them anew at each load, and links to one panel break
    return json.dumps(board, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
