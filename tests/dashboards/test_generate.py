"""The dashboards that are kept are those that the program makes, and name what there is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.generate import FOLDER, texts
from tests.dashboards.boards import BOARDS, NAME, SERIES, queries

RULES = FOLDER.parent / "deploy" / "prometheus" / "rules.yml"
RECORDED = re.compile(r"\bsentinel:[a-z0-9_:]+")
LABELS = re.compile(r"(sentinel_\w+)\{([^}]*)\}")
every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def test_the_kept_dashboards_are_up_to_date() -> None:
    """The files are what the program writes now: change the program and run `make dashboards`, never the files."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == texts()


@every_board
def test_grafanas_own_types_take_the_dashboards(board: dict[str, Any]) -> None:
    """The SDK's model reads the file, panels and all, and writes it again as it was."""
    assert json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder)) == board


@every_board
def test_queries_name_metrics_and_labels_that_there_are(board: dict[str, Any]) -> None:
    """Every metric in a query is in a table of ours or recorded by a rule; every label in its braces is its own."""
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text()))
    for query in queries(board):
        assert {name for name in NAME.findall(query.expr) if name not in SERIES} == set(), query
        assert set(RECORDED.findall(query.expr)) <= recorded, query
        for metric, matchers in LABELS.findall(query.expr):
            used = {matcher.partition("=")[0].strip(" !~") for matcher in matchers.split(",") if matcher}
            assert used <= {*SERIES[metric], "job"}, query


@every_board
def test_panels_say_what_they_are_for_and_do_not_overlap(board: dict[str, Any]) -> None:
    """Each has a title of its own in its row, a description, a number, and a place that no other panel covers."""
    cells: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        covered = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not covered & cells, panel["title"]
        assert all(x < 24 for x, _ in covered), panel["title"]
        cells |= covered
        assert panel["type"] == "row" or panel["description"], panel["title"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@every_board
def test_everything_is_asked_of_the_chosen_prometheus(board: dict[str, Any]) -> None:
    """No panel, query or variable is bound to one site's data source."""
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asking = [panel for panel in board["panels"] if panel["type"] != "row"]
    asking += [target for panel in board["panels"] for target in panel.get("targets", ())]
    asking += [each for each in board["templating"]["list"] if each["type"] == "query"]
    asking += board["annotations"]["list"]
    assert [each for each in asking if each["datasource"] != chosen] == []


def test_the_links_between_the_dashboards_lead_somewhere() -> None:
    """The run's name in the table of all runs opens the dashboard of that run."""
    text = (FOLDER / "fleet.json").read_text()
    (uid, variable) = re.search(r"/d/([\w-]+)\?var-(\w+)=", text).groups()  # type: ignore[union-attr]
    assert uid == BOARDS["run.json"]["uid"]
    assert variable in {each["name"] for each in BOARDS["run.json"]["templating"]["list"]}
