"""What the autoscaler remembers of a resource, and for how long."""

from __future__ import annotations

from tests.operator.builders import infd
from warmgraph_operator.sampling import Autoscaling
from warmgraph_operator.scale.decide import Memory


def test_after_a_rest_only_the_number_is_remembered() -> None:
    """Paused for an hour, or scaled by somebody else: what sufficed before says nothing."""
    autoscaling, key = Autoscaling(lambda: 0.0), infd().key
    autoscaling.rest(key)
    assert autoscaling._memories == {}
    autoscaling._memories[key] = Memory(replicas=3, since=1.0, peaks=((1.0, 2),), idle_since=2.0)
    autoscaling.rest(key)
    assert autoscaling._memories == {key: Memory(replicas=3)}
