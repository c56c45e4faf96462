"""The built-in autoscaler, on fake time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import load
from warmgraph_api.report import Load
from warmgraph_api.resource import Scaling
from warmgraph_operator.scale.decide import Inputs, Memory, decide, written


@dataclass
class Bench:
    """An autoscaler, its clock, and a deployment that follows it."""

    scaling: Scaling
    replicas: int = 1
    now: float = 1000.0
    memory: Memory = field(default_factory=Memory)

    def sample(self, *loads: Load | None, after: float = 2.0, **changes: Any) -> int:
        self.now += after
        settings: dict[str, Any] = {
            "replicas": self.replicas,
            "loads": loads,
            "held": 0,
            "settled": True,
            "can_wake": True,
        }
        inputs = Inputs(**{**settings, **changes})
        decision = decide(self.now, self.scaling, inputs, self.memory)
        self.replicas = decision.replicas
        self.memory = written(decision.memory, decision.replicas)
        return decision.replicas


def sample_of(replicas: int, *loads: Load | None) -> Inputs:
    return Inputs(replicas=replicas, loads=loads, held=0, settled=True, can_wake=True)


def scaling(**settings: Any) -> Scaling:
    defaults = {"minReplicas": 0, "maxReplicas": 4, "targetInFlight": 8, "idleSeconds": 60}
    return msgspec.convert({**defaults, **settings}, Scaling)


def test_requests_in_flight_scale_up_at_once_and_within_the_maximum() -> None:
    bench = Bench(scaling())
    assert bench.sample(load(8)) == 1
    assert bench.sample(load(9)) == 2
    assert bench.sample(load(20), load(20)) == 4


def test_held_requests_count() -> None:
    assert Bench(scaling()).sample(load(0), held=20) == 3


def test_down_only_when_fewer_sufficed_for_the_whole_delay() -> None:
    bench = Bench(scaling(minReplicas=1, scaleDownDelaySeconds=60), replicas=3)
    bench.sample(load(24))
    for _ in range(29):
        assert bench.sample(load(5)) == 3
    assert bench.sample(load(5), after=4) == 1


def test_a_peak_within_the_delay_keeps_its_replicas() -> None:
    bench = Bench(scaling(minReplicas=1, scaleDownDelaySeconds=60), replicas=3)
    for number in range(60):
        assert bench.sample(load(17 if number % 20 == 0 else 1)) == 3


def test_a_delay_of_zero_is_no_delay() -> None:
    bench = Bench(scaling(minReplicas=1, scaleDownDelaySeconds=0), replicas=3)
    assert bench.sample(load(1)) == 1


def test_a_restarted_operator_waits_a_whole_delay_again() -> None:
    bench = Bench(scaling(minReplicas=1, scaleDownDelaySeconds=60), replicas=3)
    for _ in range(20):
        bench.sample(load(1))
    bench.memory = Memory()
    assert bench.sample(load(1)) == 3
    assert bench.sample(load(1), after=61) == 1


def test_a_manual_scale_holds_for_a_whole_delay_and_then_load_decides() -> None:
    bench = Bench(scaling(minReplicas=1, scaleDownDelaySeconds=60))
    for _ in range(100):
        assert bench.sample(load(1)) == 1
    bench.replicas = 3
    assert bench.sample(load(1)) == 3
    assert bench.sample(load(1), after=59) == 3
    assert bench.sample(load(1), after=1) == 1


def test_a_manual_scale_holds_from_zero_too() -> None:
    bench = Bench(scaling(minReplicas=0, scaleDownDelaySeconds=60, idleSeconds=20))
    for _ in range(100):
        bench.sample(load(idle=1))
    bench.replicas = 2
    for _ in range(30):
        assert bench.sample(load(idle=900), load(idle=900)) == 2
    assert bench.sample(load(idle=900), load(idle=900)) == 1
    assert bench.sample(load(idle=900), load(idle=900)) == 0


def test_an_idle_time_longer_than_the_delay_begins_anew_with_a_manual_scale() -> None:
    bench = Bench(scaling(scaleDownDelaySeconds=0, idleSeconds=100))
    bench.sample(load(1))
    bench.replicas = 2
    bench.sample(load(idle=99))
    for _ in range(49):
        assert bench.sample(load(idle=900)) == 1
    bench.sample(load(idle=900))
    assert bench.sample(load(idle=900)) == 0


def test_a_manual_scale_keeps_within_the_bounds_and_adds_to_load() -> None:
    bench = Bench(scaling(maxReplicas=3))
    bench.sample(load(1))
    bench.replicas = 5
    assert bench.sample(load(1)) == 3
    bench.replicas = 1
    assert bench.sample(load(20)) == 3


def test_waking_is_no_manual_scale() -> None:
    bench = Bench(scaling(idleSeconds=5, scaleDownDelaySeconds=600), replicas=0)
    bench.sample()
    bench.replicas = 1
    bench.sample(load(1))
    bench.sample(load(idle=6))
    assert bench.sample(load(idle=8)) == 0


def test_a_decision_that_could_not_be_written_is_no_manual_scale() -> None:
    bench = Bench(scaling(minReplicas=1, scaleDownDelaySeconds=60), replicas=2)
    bench.sample(load(1))
    kept = decide(bench.now + 61, bench.scaling, sample_of(2, load(1)), bench.memory)
    again = decide(bench.now + 62, bench.scaling, sample_of(2, load(1)), kept.memory)
    assert (kept.replicas, again.replicas) == (1, 1)


def test_idle_goes_to_zero_by_the_pods_own_clock() -> None:
    """So that an operator that was restarted puts an idle pod to sleep all the same."""
    bench = Bench(scaling())
    assert bench.sample(load(idle=59)) == 1
    assert bench.sample(load(idle=61)) == 1
    assert bench.sample(load(idle=63)) == 0


def test_idle_of_zero_seconds_means_at_once() -> None:
    bench = Bench(scaling(idleSeconds=0))
    bench.sample(load(idle=0.0))
    assert bench.sample(load(idle=0.1)) == 0


def test_several_idle_replicas_go_to_zero_together() -> None:
    bench = Bench(scaling(scaleDownDelaySeconds=86_400), replicas=3)
    bench.sample(load(idle=70), load(idle=90), load(idle=80))
    assert bench.sample(load(idle=72), load(idle=92), load(idle=82)) == 0


def test_one_busy_replica_keeps_all_from_zero() -> None:
    bench = Bench(scaling(scaleDownDelaySeconds=86_400), replicas=2)
    for _ in range(5):
        assert bench.sample(load(idle=900), load(1)) == 2


def test_a_pod_that_is_still_starting_never_counts_as_idle() -> None:
    bench = Bench(scaling())
    for _ in range(100):
        assert bench.sample() == 1


def test_a_pod_that_does_not_answer_is_neither_idle_nor_superfluous() -> None:
    bench = Bench(scaling(scaleDownDelaySeconds=0), replicas=2)
    for _ in range(5):
        assert bench.sample(load(idle=900), None) == 1
    bench = Bench(scaling(scaleDownDelaySeconds=0), replicas=2)
    for _ in range(5):
        assert bench.sample(load(8), None) == 2


def test_a_held_request_or_an_unknown_queue_keeps_from_zero() -> None:
    bench = Bench(scaling())
    for held in (1, None, 1, None):
        assert bench.sample(load(idle=900), held=held) == 1


def test_no_zero_without_someone_to_wake_it_or_during_a_rollout() -> None:
    bench = Bench(scaling())
    for _ in range(5):
        assert bench.sample(load(idle=900), can_wake=False) == 1
        assert bench.sample(load(idle=900), settled=False) == 1


def test_no_zero_above_a_minimum() -> None:
    bench = Bench(scaling(minReplicas=1))
    for _ in range(5):
        assert bench.sample(load(idle=90_000)) == 1


def test_zero_is_left_to_the_activator_but_a_minimum_is_kept() -> None:
    assert Bench(scaling(), replicas=0).sample(held=50) == 0
    assert Bench(scaling(minReplicas=2), replicas=0).sample() == 2


def test_the_bounds_hold_at_once() -> None:
    assert Bench(scaling(maxReplicas=2), replicas=4).sample(load(50)) == 2
    assert Bench(scaling(minReplicas=3), replicas=1).sample(load(0)) == 3


def test_two_samples_in_the_same_moment_are_not_enough_for_zero() -> None:
    """A request that has left the activator may not have reached the engine yet."""
    bench = Bench(scaling(idleSeconds=0))
    bench.sample(load(idle=5))
    assert bench.sample(load(idle=5), after=0.0) == 1
    assert bench.sample(load(1), after=2.0) == 1
    assert bench.sample(load(idle=0), after=0.5) == 1
    assert bench.sample(load(idle=2), after=2.0) == 0


loads = st.one_of(
    st.none(),
    st.builds(load, st.integers(0, 100), st.floats(min_value=0, max_value=1000, allow_nan=False)),
)


@given(
    st.integers(0, 5),
    st.integers(1, 5),
    st.lists(st.tuples(st.lists(loads, max_size=5), st.floats(0.1, 100)), max_size=20),
)
def test_the_number_is_always_within_the_bounds(
    minimum: int, maximum: int, samples: list[tuple[list[Load | None], float]]
) -> None:
    minimum = min(minimum, maximum)
    bench = Bench(scaling(minReplicas=minimum, maxReplicas=maximum), replicas=maximum)
    for values, after in samples:
        number = bench.sample(*values, after=after)
        assert minimum <= number <= maximum
        assert number >= 1 or minimum == 0
