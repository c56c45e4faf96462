"""Whether an object needs a write."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from warmgraph_operator.differences import is_applied, stamp
from warmgraph_operator.kinds import Object

WANTED: Object = {
    "metadata": {"name": "tiny", "labels": {"a": "1"}},
    "spec": {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "args": ["--a", "--b"],
                        "env": [{"name": "A", "value": "1"}, {"name": "EMPTY", "value": ""}],
                        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}},
                        "securityContext": {"allowPrivilegeEscalation": False},
                    }
                ],
                "volumes": [{"name": "run", "emptyDir": {}}],
                "enableServiceLinks": False,
            }
        },
    },
}


def stored(wanted: Object) -> Any:
    """As the API server gives it back: with defaults, and quantities in its own form."""
    live = copy.deepcopy(wanted)
    live["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    live["spec"]["progressDeadlineSeconds"] = 600
    pod = live["spec"]["template"]["spec"]
    pod["dnsPolicy"] = "ClusterFirst"
    (container,) = pod["containers"]
    container["terminationMessagePath"] = "/dev/termination-log"
    container["resources"]["requests"] = {"cpu": "1", "memory": "1Gi"}
    container["env"][1].pop("value")
    return live


def container_of(live: Any) -> Any:
    return live["spec"]["template"]["spec"]["containers"][0]


def test_what_the_api_server_adds_and_rewrites_is_no_difference() -> None:
    wanted = stamp(WANTED)
    assert is_applied(wanted, stored(wanted))


@pytest.mark.parametrize(
    "change",
    [
        lambda live: live["spec"].update(replicas=2),
        lambda live: live["spec"].update(replicas=0),
        lambda live: live["metadata"]["labels"].update(a="2"),
        lambda live: live["metadata"].pop("labels"),
        lambda live: container_of(live)["args"].append("--c"),
        lambda live: container_of(live).update(args=["--b", "--a"]),
        lambda live: container_of(live)["env"].pop(0),
        lambda live: container_of(live)["resources"]["requests"].update(memory="2Gi"),
        lambda live: container_of(live)["securityContext"].update(allowPrivilegeEscalation=True),
        lambda live: live["spec"]["template"]["spec"].update(enableServiceLinks=True),
        lambda live: live["spec"]["template"]["spec"]["volumes"].pop(),
    ],
)
def test_what_others_change_of_ours_is_a_difference(change: Any) -> None:
    wanted = stamp(WANTED)
    live = stored(wanted)
    change(live)
    assert not is_applied(wanted, live)


@pytest.mark.parametrize(
    "change",
    [
        lambda live: live["metadata"]["labels"].update(theirs="1"),
        lambda live: container_of(live)["env"].append({"name": "THEIRS", "value": "1"}),
        lambda live: container_of(live)["env"].reverse(),
        lambda live: live["spec"].update(paused=True),
    ],
)
def test_what_others_add_is_theirs(change: Any) -> None:
    wanted = stamp(WANTED)
    live = stored(wanted)
    change(live)
    assert is_applied(wanted, live)


def test_a_field_that_is_no_longer_wanted_is_a_difference() -> None:
    """The live object still has it, and nothing in it says whose it is."""
    before = stamp(WANTED)
    fewer = copy.deepcopy(WANTED)
    fewer["spec"].pop("strategy")
    assert not is_applied(stamp(fewer), stored(before))


def test_the_stamp_does_not_depend_on_the_order_of_keys_or_on_replicas() -> None:
    turned = dict(reversed(list(WANTED.items())))
    assert stamp(turned)["metadata"] == stamp(WANTED)["metadata"]
    scaled = copy.deepcopy(WANTED)
    scaled["spec"]["replicas"] = 9
    assert stamp(scaled)["metadata"] == stamp(WANTED)["metadata"]
