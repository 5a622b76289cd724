"""The agent in a plain loop on the device: what is computed stays what it is alone, and a NaN is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.daemons import Agent as Person
from tests.daemons import serving
from tests.gpu.plain_training import Training
from tests.trainer.sentinel_agent.small_training import same

pytestmark = pytest.mark.gpu


def test_loop_is_bit_identical_and_its_nan_is_seen(deterministic: torch.device, tmp_path: Path) -> None:
    """A real daemon has an incident from the poisoned step; weights and generator are those of the loop alone."""
    ends = []
    with serving(tmp_path) as daemon, Person(daemon.url) as person:
        for is_watched in (False, True):
            training = Training(deterministic)
            if is_watched:
                with training.agent(tmp_path, url=daemon.url, run="plain") as sentinel:
                    training.run(40, sentinel)
                    next(training.model.parameters()).data[0, 0] = float("nan")
                    training.run(10, sentinel)
            else:
                training.run(40)
                next(training.model.parameters()).data[0, 0] = float("nan")
                training.run(10)
            ends.append([torch.nan_to_num(each, nan=7.0) for each in training.losses])
            ends.append([torch.nan_to_num(each, nan=7.0) for each in training.model.state_dict().values()])
            ends.append([torch.cuda.get_rng_state(deterministic)])
        (incident,) = person.get("/v1/incidents")["incidents"]
    assert (incident["symptom"], incident["onset_step"]) == ("nonfinite", 41)
    assert same(ends[:3], ends[3:])
