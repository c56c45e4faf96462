"""Down to zero and back: nobody is ever without an answer."""

from __future__ import annotations

import itertools
from typing import Any

from tests.operator.builders import deployment, infd, observed, pod
from warmgraph_operator.zero import Plan, Situation, is_replacing, needs_proof, plan

ACTIVATOR = ("10.0.0.9",)


def situation(**changes: Any) -> Situation:
    settings: dict[str, Any] = {
        "wanted": 1,
        "current": 1,
        "native_endpoints": 1,
        "replacing": False,
        "activators": ACTIVATOR,
        "standing_in": (),
        "proven": False,
    }
    return Situation(**{**settings, **changes})


def test_activators_are_out_of_the_path_while_pods_serve() -> None:
    for standing_in in ((), ACTIVATOR):
        assert plan(situation(standing_in=standing_in)) == Plan(
            replicas=1, addresses=(), may_replace=True
        )


def test_the_last_pod_stays_until_an_activator_is_in_the_service_and_answers() -> None:
    first = plan(situation(wanted=0))
    assert (first.replicas, first.addresses, first.waiting_for_activator) == (1, ACTIVATOR, True)
    unproven = plan(situation(wanted=0, standing_in=ACTIVATOR))
    assert unproven.replicas == 1
    proven = plan(situation(wanted=0, standing_in=ACTIVATOR, proven=True))
    assert (proven.replicas, proven.addresses, proven.waiting_for_activator) == (
        0,
        ACTIVATOR,
        False,
    )


def test_with_no_activator_ready_one_pod_stays_of_many() -> None:
    step = plan(situation(wanted=0, current=5, activators=()))
    assert (step.replicas, step.addresses, step.waiting_for_activator) == (1, (), True)


def test_at_zero_the_slice_follows_the_activators() -> None:
    other = ("10.0.0.8",)
    step = plan(
        situation(wanted=0, current=0, native_endpoints=0, standing_in=ACTIVATOR, activators=other)
    )
    assert (step.replicas, step.addresses) == (0, other)


def test_at_zero_without_activators_nothing_is_started() -> None:
    step = plan(situation(wanted=0, current=0, native_endpoints=0, activators=()))
    assert (step.replicas, step.addresses) == (0, ())


def test_coming_up_the_activators_stay_until_an_endpoint_is_live() -> None:
    rising = plan(situation(current=0, native_endpoints=0, standing_in=ACTIVATOR))
    assert (rising.replicas, rising.addresses) == (1, ACTIVATOR)
    assert plan(situation(standing_in=ACTIVATOR)).addresses == ()


def test_they_stand_in_for_pods_that_are_all_unready() -> None:
    assert plan(situation(native_endpoints=0)).addresses == ACTIVATOR


def test_a_replacement_waits_until_they_stand_in() -> None:
    first = plan(situation(replacing=True))
    assert (first.addresses, first.may_replace) == (ACTIVATOR, False)
    assert not plan(situation(replacing=True, standing_in=ACTIVATOR)).may_replace
    assert plan(situation(replacing=True, standing_in=ACTIVATOR, proven=True)).may_replace


def test_a_replacement_does_not_wait_for_activators_that_are_not_there() -> None:
    assert plan(situation(replacing=True, activators=())).may_replace
    assert plan(situation(replacing=True, activators=None)).may_replace


def test_without_activators_by_configuration_zero_is_zero() -> None:
    step = plan(situation(wanted=0, current=3, activators=None))
    assert step == Plan(replicas=0, addresses=(), may_replace=True)


def test_zero_is_never_reached_uncovered() -> None:
    """Over every situation with pods: the Deployment goes to 0 only behind a proven slice."""
    flags, slices = (False, True), ((), ACTIVATOR)
    for wanted, current, endpoints, replacing, activators, standing_in, proven in itertools.product(
        (0, 1, 3), (1, 3), (0, 1), flags, slices, slices, flags
    ):
        step = plan(
            situation(
                wanted=wanted,
                current=current,
                native_endpoints=endpoints,
                replacing=replacing,
                activators=activators,
                standing_in=standing_in,
                proven=proven,
            )
        )
        assert step.replicas > 0 or (standing_in and proven)
        assert wanted == 0 or step.replicas == wanted


def test_proof_is_asked_for_only_before_a_step_that_needs_it() -> None:
    assert needs_proof(wanted=0, current=1, replacing=False)
    assert needs_proof(wanted=1, current=1, replacing=True)
    assert not needs_proof(wanted=0, current=0, replacing=False)
    assert not needs_proof(wanted=1, current=1, replacing=False)


def test_a_replacement_lasts_until_the_last_old_pod_is_gone() -> None:
    """Also a stopping one: its endpoint may still be listed as ready, and the activators must not
    leave on its account."""
    replace = infd(rollout={"strategy": "Replace"})
    assert not is_replacing(replace, observed(pod()), "r1")
    assert is_replacing(replace, observed(pod()), "r2")
    written = deployment(revision="r2")
    assert is_replacing(replace, observed(pod(stopping=True), deployment=written), "r2")
    new = pod(revision="r2")
    assert not is_replacing(replace, observed(new, deployment=written), "r2")
    assert not is_replacing(infd(), observed(pod()), "r2")
    asleep = observed(deployment=deployment(replicas=0))
    assert not is_replacing(replace, asleep, "r2")
