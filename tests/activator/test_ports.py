"""Ports follow the resources, through restarts and failures."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.activator.activated import until
from tests.activator.cluster import PODS, RESOURCES
from tests.activator.conftest import Started, World


async def answers(world: World, port: int) -> dict[str, str] | None:
    """What stands behind a port, or None where nothing listens."""
    try:
        async with world.client.get(f"http://127.0.0.1:{port}/.warmgraph/ready") as response:
            return await response.json()  # type: ignore[no-any-return]
    except aiohttp.ClientConnectionError:
        return None


async def until_answers(world: World, port: int, expected: dict[str, str] | None) -> None:
    async def so() -> bool:
        return await answers(world, port) == expected

    await until(so)


async def test_each_port_says_whom_it_stands_for(world: World) -> None:
    await world.deployment("llm")
    await world.deployment("other", port=world.other_port)
    await world.start()
    assert await answers(world, world.port) == {"namespace": "default", "name": "llm"}
    assert await answers(world, world.other_port) == {"namespace": "default", "name": "other"}


async def test_ports_open_and_close_with_their_resources(world: World) -> None:
    await world.start()
    assert await answers(world, world.port) is None
    await world.deployment("llm", port=0)
    await world.deployment("llm")
    await until_answers(world, world.port, {"namespace": "default", "name": "llm"})
    await world.deployment("llm", port=world.other_port)
    await until_answers(world, world.other_port, {"namespace": "default", "name": "llm"})
    await until_answers(world, world.port, None)
    await world.api.delete(RESOURCES, "llm")
    await until_answers(world, world.other_port, None)
    assert await world.queues() == {}


async def test_a_port_goes_over_to_another_resource(world: World) -> None:
    await world.deployment("llm")
    await world.start()
    await world.api.delete(RESOURCES, "llm")
    await world.deployment("next")
    await until_answers(world, world.port, {"namespace": "default", "name": "next"})


async def test_a_port_that_somebody_holds_is_tried_again(world: World) -> None:
    blocker = await asyncio.start_server(lambda r, w: None, "127.0.0.1", world.port)
    await world.deployment("llm")
    await world.deployment("other", port=world.other_port)
    await world.start()
    assert await answers(world, world.other_port) is not None
    blocker.close()
    await until_answers(world, world.port, {"namespace": "default", "name": "llm"})


async def test_held_requests_of_a_deleted_resource_are_answered(at_zero: Started) -> None:
    world = await at_zero()
    asking = world.asking()
    await world.held(1)
    await world.api.delete(RESOURCES, "llm")
    status, body = await asking
    assert (status, body["error"]["code"]) == (503, "deployment_deleted")


async def test_it_is_not_ready_before_it_knows_every_port(world: World) -> None:
    await world.deployment()
    await world.api.stop()
    starting = asyncio.create_task(world.start())
    await until(lambda: world.activator is not None)
    await world.status("/healthz", 200)
    assert await world.admin_status("/readyz") == 503
    await world.api.start()
    await starting
    assert await answers(world, world.port) is not None


async def test_held_requests_survive_a_restart_of_the_api_server(at_zero: Started) -> None:
    world = await at_zero()
    asking = world.asking()
    await until(lambda: world.api.scale_writes)
    await world.api.stop()
    await asyncio.sleep(0.3)
    await world.held(1)
    later = world.asking()
    await world.held(2)
    await world.api.start()
    await (await world.pod("llm-a")).start()
    assert [status for status, _ in await asyncio.gather(asking, later)] == [200, 200]


async def test_a_watch_that_is_too_old_is_begun_anew(world: World) -> None:
    await world.deployment()
    gone = await world.pod("llm-gone", 3, ready=True)
    await gone.start()
    await world.start()
    await world.api.stop()
    await world.api.delete(PODS, "llm-gone")
    await world.deployment("other", port=world.other_port)
    world.api.events.clear()
    world.api.oldest = world.api.version
    await world.api.start()
    await until_answers(world, world.other_port, {"namespace": "default", "name": "other"})
    await until(lambda: world.api.watched(PODS))
    asking = world.asking()
    await world.held(1)
    assert gone.requests == []
    await (await world.pod("llm-a")).start()
    assert (await asking)[1]["pod"] == "llm-a"


async def test_an_object_that_cannot_be_read_hides_no_other(world: World) -> None:
    await world.api.put(RESOURCES, {"metadata": {"name": "odd", "namespace": 7}})
    await world.deployment()
    await world.start()
    assert await answers(world, world.port) is not None


@pytest.fixture
async def stopping(at_zero: Started, monkeypatch: pytest.MonkeyPatch) -> Started:
    """As `at_zero`, with the process's SIGTERM handler in the test's hands as `world.stop`."""
    loop = asyncio.get_running_loop()
    handlers = []
    monkeypatch.setattr(
        loop, "add_signal_handler", lambda number, handler: handlers.append(handler)
    )

    async def start(**activation: object) -> World:
        world = await at_zero(**activation)
        world.stop = handlers[0]  # type: ignore[attr-defined]
        return world

    return start


async def test_the_end_is_announced_before_the_ports_close(stopping: Started) -> None:
    world = await stopping()
    world.stop()  # type: ignore[attr-defined]
    await world.status("/readyz", 503)
    assert await answers(world, world.port) is not None, "requests still find a listener"
    await until_answers(world, world.port, None)
    assert world.activator is not None
    await world.activator


async def test_at_the_end_forwarded_requests_finish_and_held_ones_are_told(
    stopping: Started,
) -> None:
    world = await stopping()
    model = await world.pod("llm-a")
    await model.start()
    forwarded = world.asking(headers={"X-Wait": "yes"})
    await until(lambda: model.running == 1)
    model.ready = False
    await until(lambda: world.api.scale_writes)
    await asyncio.sleep(3.1)  # until the sidecar's last answer no longer counts
    held = world.asking()
    await world.held(1)
    world.stop()  # type: ignore[attr-defined]
    async with world.client.get(world.url) as response:
        assert response.status == 503
        assert response.headers["Retry-After"] == "1"
        assert (await response.json())["error"]["code"] == "shutting_down"
    assert (await held)[0] == 503
    model.release.set()
    assert (await forwarded)[0] == 200
    assert world.activator is not None
    await world.activator
