"""Activator ports: one each, kept for life."""

from __future__ import annotations

from tests.operator.builders import infd
from warmgraph_api import ports
from warmgraph_operator.portmap import PortMap, lowest_free
from warmgraph_operator.resource import InferenceDeployment

FIRST = ports.ACTIVATOR_FIRST_PORT


def named(name: str, port: int = 0) -> InferenceDeployment:
    return infd(name=name, uid=name, status={"activator": {"port": port}})


def test_the_lowest_free_port_is_given() -> None:
    others = [named("a", FIRST), named("b", FIRST + 2)]
    assert PortMap().assign(named("c"), others) == FIRST + 1


def test_a_port_is_kept() -> None:
    assert PortMap().assign(named("c", FIRST + 9), [named("a", FIRST)]) == FIRST + 9


def test_two_at_once_get_different_ports() -> None:
    """The list that both were given shows neither."""
    ports_given = PortMap()
    stale = [named("a"), named("b")]
    first = ports_given.assign(named("a"), stale)
    assert {first, ports_given.assign(named("b"), stale)} == {FIRST, FIRST + 1}
    assert ports_given.assign(named("a"), stale) == first


def test_of_two_with_the_same_port_the_first_by_name_keeps_it() -> None:
    both = [named("a", FIRST), named("b", FIRST)]
    ports_given = PortMap()
    assert ports_given.assign(both[0], both) == FIRST
    assert ports_given.assign(both[1], both) == FIRST + 1


def test_the_port_of_one_that_is_gone_is_free_again() -> None:
    ports_given = PortMap()
    ports_given.assign(named("a"), [])
    ports_given.forget(named("a").key)
    assert ports_given.assign(named("b"), []) == FIRST


def test_when_all_are_taken_there_is_none() -> None:
    assert lowest_free(range(FIRST, ports.ACTIVATOR_LAST_PORT + 1)) == 0
