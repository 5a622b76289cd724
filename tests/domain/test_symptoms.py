from __future__ import annotations

from sentinel.domain.symptoms import CONCERNS, concern, doubts_checkpoints


def test_only_the_optimization_doubts_checkpoints() -> None:
    """What is slow or breaks does not make the weights wrong; what is unknown may."""
    doubting = {symptom for symptom in CONCERNS if doubts_checkpoints(symptom)}
    assert {"nonfinite", "loss_spike", "divergence"} <= doubting
    assert not {"throughput_drop", "data_stall", "straggler", "device_throttle", "device_fault"} & doubting
    assert concern("of an older version") == "optimization"
