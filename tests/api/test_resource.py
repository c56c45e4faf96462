"""The types of the resource, as the operator and the activator see objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from warmgraph_api import labels
from warmgraph_api.inferencedeployment import InferenceDeployment
from warmgraph_api.resource import Scaling, Spec
from warmgraph_api.status import Status

ROOT = Path(__file__).parents[2]
SMALLEST: dict[str, Any] = {"model": {"uri": "pvc://models/a"}}


def examples() -> list[Any]:
    documents = [
        pytest.param(document, id=f"{path.name}-{document['metadata']['name']}")
        for path in sorted((ROOT / "examples").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == labels.KIND
    ]
    assert len(documents) >= 6
    return documents


def is_within(part: Any, whole: Any) -> bool:
    """Whether everything in `part` stands in `whole`, which may have more fields."""
    if isinstance(part, dict):
        return all(key in whole and is_within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


@pytest.mark.parametrize("document", examples())
def test_an_example_decodes_with_nothing_lost(document: dict[str, Any]) -> None:
    decoded = msgspec.convert(document, InferenceDeployment)
    assert is_within(document["spec"], msgspec.to_builtins(decoded.spec))


def test_a_spec_needs_a_model_and_nothing_else() -> None:
    spec = msgspec.convert(SMALLEST, Spec)
    assert spec.replicas == 1
    assert spec.buckets.decode.eager == []
    with pytest.raises(msgspec.ValidationError, match="model"):
        msgspec.convert({}, Spec)


def test_zero_is_zero_and_not_unset() -> None:
    zeros = {
        "minReplicas": 0,
        "idleSeconds": 0,
        "scaleDownDelaySeconds": 0,
        "activation": {"queueLimit": 0, "queueMebibytes": 0, "heartbeatSeconds": 0},
    }
    assert is_within(zeros, msgspec.to_builtins(msgspec.convert(zeros, Scaling)))


def test_an_older_operator_reads_the_object_of_a_newer_crd() -> None:
    newer = {
        "metadata": {"name": "a", "managedFields": []},
        "spec": SMALLEST | {"adapters": ["x"], "engine": {"pipelineParallelSize": 2}},
        "status": {"observedGeneration": 3, "weather": "fine"},
    }
    decoded = msgspec.convert(newer, InferenceDeployment)
    assert decoded.status.observed_generation == 3
    assert decoded.spec.engine.tensor_parallel_size == 1


def test_an_object_without_status_is_a_new_one() -> None:
    decoded = msgspec.convert({"metadata": {"name": "a"}, "spec": SMALLEST}, InferenceDeployment)
    assert decoded.status == Status()


def test_a_field_is_written_in_camel_case_only() -> None:
    written = msgspec.to_builtins(msgspec.convert(SMALLEST, Spec))
    assert written["graphCache"]["volume"]["claimName"] == ""
    assert "graph_cache" not in written


def test_two_objects_never_share_a_list() -> None:
    first, second = msgspec.convert(SMALLEST, Spec), msgspec.convert(SMALLEST, Spec)
    first.template.env.append({"name": "A"})
    assert second.template.env == []
