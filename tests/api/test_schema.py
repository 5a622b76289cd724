from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from sentinel.api import documents, examples, problems
from sentinel.api.application import create_app
from sentinel.domain import errors
from sentinel.protocol.codec import decode_batch
from sentinel.protocol.observations import SENDER_KINDS
from tests.builders import RUN
from tests.daemons import Agent


@pytest.fixture
def schema(agent: Agent) -> dict[str, Any]:
    """The schema of the whole interface."""
    answer: dict[str, Any] = agent.get("/openapi.json")
    assert answer == agent.get("/openapi.json")
    return answer


def references(tree: Any) -> Iterator[str]:
    """Every reference in a schema."""
    if isinstance(tree, dict):
        yield from ([tree["$ref"]] if isinstance(tree.get("$ref"), str) else [])
        for value in tree.values():
            yield from references(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from references(value)


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    """The schema is whole: what it refers to is in it."""
    known = {f"#/components/schemas/{name}" for name in schema["components"]["schemas"]}
    assert set(references(schema)) <= known


def test_a_batch_is_described_with_every_kind(schema: dict[str, Any]) -> None:
    """Whoever writes an agent of their own finds each observation with its kind and what it needs."""
    described = schema["components"]["schemas"]
    items = described["ObservationBatch"]["properties"]["observations"]["items"]["anyOf"]
    assert [each["$ref"].rpartition("/")[2] for each in items] == [kind.__name__ for kind in SENDER_KINDS]
    assert described["StepReport"]["properties"]["kind"] == {"const": "step"}
    assert described["StepReport"]["required"] == ["kind", "at", "step"]
    body = schema["paths"]["/v1/observations"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/ObservationBatch"}


def test_every_endpoint_says_what_it_answers(schema: dict[str, Any]) -> None:
    """Each answer but Prometheus's text has a schema, and each error is a problem."""
    for path, verbs in schema["paths"].items():
        for verb in verbs.values():
            if path not in ("/metrics", "/health", "/ready"):
                assert "$ref" in verb["responses"]["200"]["content"]["application/json"]["schema"], path
                assert "Problem" in str(verb["responses"]["422"]), path


def test_there_are_no_pages_that_need_the_internet(agent: Agent) -> None:
    """The documentation pages whose scripts come from elsewhere are switched off."""
    assert agent.http.get("/docs").status_code == 404
    assert agent.http.get("/redoc").status_code == 404


def test_answers_are_what_the_schema_says(agent: Agent) -> None:
    """Real answers, with a NaN among them, fit the classes that describe them, and no field is undescribed."""
    agent.ready_to_roll_back()
    (command,) = agent.break_down().commands
    agent.roll_back(command.id, 20)
    agent.train(40)
    answers = {
        "/v1/runs": documents.Runs,
        f"/v1/runs/{RUN}": documents.RunStanding,
        f"/v1/runs/{RUN}/attempts": documents.Attempts,
        f"/v1/runs/{RUN}/decisions": documents.Decisions,
        f"/v1/runs/{RUN}/findings": documents.Findings,
        f"/v1/runs/{RUN}/checkpoints": documents.Checkpoints,
        f"/v1/runs/{RUN}/series": documents.Series,
        "/v1/incidents": documents.Incidents,
        f"/v1/incidents/{command.incident}": documents.IncidentStory,
    }
    for path, described in answers.items():
        answer = agent.get(path)
        adapter: TypeAdapter[Any] = TypeAdapter(described)
        read = adapter.dump_python(adapter.validate_python(answer), mode="python")
        assert not undescribed(answer, read), path


def test_every_endpoint_has_examples_that_are_right(schema: dict[str, Any]) -> None:
    """Each request and answer has an example, which fits the class that describes it and has no other field."""
    answers = {(verb, path) for path, verbs in schema["paths"].items() for verb in verbs}
    assert answers == examples.ANSWERS.keys()
    assert {(verb, path) for verb, path in answers if verb == "post"} == examples.REQUESTS.keys()
    routes = [each for each in create_app(cast(Any, None)).routes if isinstance(each, APIRoute)]
    routes = [each for each in routes if each.include_in_schema]
    for route in routes:
        for verb in route.methods:
            answer = examples.ANSWERS[verb.lower(), route.path]
            if route.response_model is not None:
                adapter: TypeAdapter[Any] = TypeAdapter(route.response_model)
                assert not undescribed(answer, adapter.dump_python(adapter.validate_python(answer))), route.path
    for path, request in examples.REQUESTS.items():
        if path[1] == "/v1/observations":
            assert len(decode_batch(request).observations) == 2
        else:
            assert TypeAdapter(documents.RollbackWish).validate_python(request)


def test_errors_are_described_as_problems(schema: dict[str, Any]) -> None:
    """Every endpoint documents its errors under their own media type, with an example, and parameters have one too."""
    for path, verbs in schema["paths"].items():
        for operation in verbs.values():
            (problem,) = operation["responses"]["default"]["content"].items()
            assert problem[0] == "application/problem+json", path
            assert problem[1]["example"]["remedy"]
            in_path = [each for each in operation.get("parameters", ()) if each["in"] == "path"]
            assert all("example" in each for each in in_path)


def undescribed(answer: Any, read: Any, path: str = "") -> list[str]:
    """Fields of an answer that its class does not have; a protocol object's kind is the class itself."""
    if isinstance(answer, dict):
        return [
            found
            for name, value in answer.items()
            if name != "kind"
            for found in (undescribed(value, read[name], f"{path}.{name}") if name in read else [f"{path}.{name}"])
        ]
    if isinstance(answer, list):
        return [found for one, other in zip(answer, read, strict=True) for found in undescribed(one, other, path)]
    return []


def test_every_error_that_is_raised_on_purpose_has_a_status() -> None:
    """Each error is a problem of its own or of its parent, but for bugs, which are 500, and a collector's own."""
    ours = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.SentinelError)]
    unmapped = {each for each in ours if not any(parent in problems.REMEDIES for parent in each.__mro__)}
    assert unmapped == {errors.SentinelError, errors.IllegalTransition, errors.DriverUnavailable}
