"""Whatever is sent, the answer is what /openapi.json says, and never a failure of the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sentinel.api import examples
from tests.daemons import Agent, serving

RUN = examples.PARAMETERS["run"]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The schema of a daemon that knows the run of the examples, with an incident that has a NaN in its evidence."""
    with serving(tmp_path_factory.mktemp("api")) as daemon, Agent(daemon.url, RUN) as agent:
        agent.ready_to_roll_back()
        agent.break_down()
        (incident,) = agent.get("/v1/incidents")["incidents"]
        (decision,) = agent.get(f"/v1/runs/{RUN}/decisions")["decisions"]
        known = agent.get("/openapi.json")
        names = {"run": RUN, "incident": incident["id"], "decision": decision["id"]}
        operations = [operation for verbs in known["paths"].values() for operation in verbs.values()]
        for parameter in [each for operation in operations for each in operation.get("parameters", ())]:
            if parameter["in"] == "path":  # else hardly a request would be about something that is there
                parameter["schema"] = {"enum": [names[parameter["name"]], "absent"]}
        schema = schemathesis.openapi.from_dict(known)
        schema.config.update(base_url=daemon.url)
        yield schema


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("verb", "path"), examples.ANSWERS)
def test_every_answer_is_as_described(api: Any, verb: str, path: str, mode: GenerationMode) -> None:
    """Right and wrong requests alike get an answer of the schema, and none is a 5xx."""

    @settings(max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(api[path][verb].as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
        case.call_and_validate(checks=checks)

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # nothing can be wrong where nothing is asked
