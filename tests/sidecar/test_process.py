"""The sidecar as a process: what the kubelet and the engine notice of it."""

from __future__ import annotations

import asyncio
import signal
import time

from tests.sidecar.conftest import Start
from tests.sidecar.reports import CAPTURED, PENDING, eager
from warmgraph_api import wire
from warmgraph_api.report import Fault, Load, Stage


async def test_an_engine_that_warms_up_becomes_ready(start: Start) -> None:
    sidecar = await start()
    assert (await sidecar.get("/readyz"))[0] == 503
    assert (await sidecar.get("/livez"))[0] == 200, "no engine yet: wait for it"
    engine = await sidecar.engine()
    await engine.report(stage=Stage.CAPTURING, buckets=eager(CAPTURED, PENDING))
    await sidecar.until("/readyz", 503, "WarmingUp")
    await engine.report(progress=2)
    sent = time.monotonic()
    body = await sidecar.until("/readyz", 200)
    print(f"report to /readyz 200: {(time.monotonic() - sent) * 1000:.0f} ms")
    assert body == {
        "ready": True,
        "reason": "GraphsCaptured",
        "message": "eager buckets 2/2",
    }
    status, state = await sidecar.get("/warmup")
    assert status == 200
    assert state["ready"]
    assert state["engineConnected"]
    assert state["report"]["bootId"] == "first"


async def test_a_stalled_warmup_fails_liveness_with_its_reason(start: Start) -> None:
    sidecar = await start("--stall-timeout-seconds", "0.5")
    engine = await sidecar.engine()
    await engine.report(stage=Stage.CAPTURING, message="decode 16")
    engine.beat()
    body = await sidecar.until("/livez", 503)
    assert body["reason"] == "WarmupStalled"
    assert "Capturing (decode 16)" in body["message"]
    await engine.report(stage=Stage.CAPTURING, progress=2)
    assert (await sidecar.until("/livez", 200))["live"]
    await engine.close()


async def test_an_engine_that_goes_away_is_unready_and_may_come_back(start: Start) -> None:
    sidecar = await start()
    engine = await sidecar.engine()
    await engine.report()
    await sidecar.until("/readyz", 200)
    await engine.close()
    await sidecar.until("/readyz", 503, "EngineFault")
    assert (await sidecar.get("/livez"))[0] == 200
    again = await sidecar.engine()
    await again.report()
    await sidecar.until("/readyz", 200)
    assert (await sidecar.get("/warmup"))[1]["engineRestarts"] == 0
    restarted = await sidecar.engine("second")
    await restarted.report(stage=Stage.LOADING_MODEL, buckets=[])
    await sidecar.until("/readyz", 503, "Starting")
    assert await again.closed_by_sidecar(), "the replaced process is cut off"
    assert (await sidecar.get("/warmup"))[1]["engineRestarts"] == 1


async def test_a_fault_takes_the_pod_out_and_restarts_the_engine(start: Start) -> None:
    sidecar = await start()
    engine = await sidecar.engine()
    await engine.report()
    await sidecar.until("/readyz", 200)
    await engine.report(fault=Fault(reason="DeviceLost", message="illegal memory access"))
    await sidecar.until("/readyz", 503, "EngineFault")
    assert (await sidecar.get("/livez"))[0] == 503


BAD_LINES = [
    (b"not json\n", "malformed"),
    (b'{"bootId": 1}\n', "malformed"),
    (b"\xff\xfe\n", "malformed"),
    (b"\n", "malformed"),
    (b"x" * (wire.MAX_LINE_BYTES + 10) + b"\n", "oversized"),
]


async def test_a_bad_line_costs_only_its_connection(start: Start) -> None:
    sidecar = await start()
    engine = await sidecar.engine()
    await engine.report()
    engine.beat()
    await sidecar.until("/readyz", 200)
    for line, _ in BAD_LINES:
        stranger = await sidecar.engine()
        await stranger.send(line)
        assert await stranger.closed_by_sidecar(), line[:20]
        assert (await sidecar.get("/readyz"))[0] == 200, line[:20]
    killed = await sidecar.engine()
    await killed.send(b'{"bootId": "first", "seq')
    await killed.close()
    metrics = (await sidecar.get("/metrics"))[1]
    assert 'report_connections_dropped_total{cause="malformed"} 4.0' in metrics
    assert 'report_connections_dropped_total{cause="oversized"} 1.0' in metrics
    await engine.close()


async def test_drain_waits_for_the_requests_in_flight(start: Start) -> None:
    sidecar = await start("--drain-settle-seconds", "0.2")
    engine = await sidecar.engine()
    await engine.report(load=Load(running=1, waiting=1))
    engine.beat()
    await sidecar.until("/readyz", 200)
    first = asyncio.create_task(sidecar.get("/drain"))
    assert (await engine.command()).name is wire.CommandName.DRAIN
    await sidecar.until("/readyz", 503, "Draining")
    second = asyncio.create_task(sidecar.get("/drain"))
    done, _ = await asyncio.wait([first, second], timeout=0.5)
    assert not done, "requests are in flight"
    assert (await sidecar.get("/livez"))[0] == 200
    await engine.report(load=Load())
    (status, body), (_, joined) = await asyncio.gather(first, second)
    assert status == 200
    assert body["drained"]
    assert joined == body, "the second call joined the first"
    assert "warmgraph_pod_drains_total 1.0" in (await sidecar.get("/metrics"))[1]
    await engine.close()


async def test_drain_ends_at_its_timeout(start: Start) -> None:
    sidecar = await start("--drain-settle-seconds", "0", "--drain-timeout-seconds", "0.3")
    engine = await sidecar.engine()
    await engine.report(load=Load(running=3))
    engine.beat()
    await sidecar.until("/readyz", 200)
    _, body = await sidecar.get("/drain")
    assert (body["drained"], body["inFlight"]) == (False, 3)
    await engine.close()


async def test_an_engine_that_connects_during_a_drain_is_told(start: Start) -> None:
    sidecar = await start("--drain-settle-seconds", "30", "--drain-timeout-seconds", "60")
    engine = await sidecar.engine()
    await engine.report(load=Load(running=1))
    await sidecar.until("/readyz", 200)
    drain = asyncio.create_task(sidecar.get("/drain"))
    await engine.command()
    await engine.close()
    again = await sidecar.engine()
    await again.report(load=Load(running=1))
    assert (await again.command()).name is wire.CommandName.DRAIN
    drain.cancel()


async def test_sigterm_ends_it_at_once_unless_a_drain_runs(start: Start) -> None:
    sidecar = await start("--drain-settle-seconds", "0")
    engine = await sidecar.engine()
    await engine.report(load=Load(running=1))
    engine.beat()
    await sidecar.until("/readyz", 200)
    drain = asyncio.create_task(sidecar.get("/drain"))
    await engine.command()
    sidecar.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.2)
    assert (await sidecar.get("/livez"))[0] == 200, "it answers until the drain is over"
    await engine.report(load=Load())
    assert (await drain)[1]["drained"]
    assert await sidecar.process.wait() == 0
    await engine.close()


async def test_a_new_sidecar_replaces_the_socket_of_a_killed_one(start: Start) -> None:
    first = await start()
    first.process.kill()
    await first.process.wait()
    assert first.socket.is_socket()
    second = await start()
    engine = await second.engine()
    await engine.report()
    await second.until("/readyz", 200)


async def test_it_stays_small(start: Start) -> None:
    sidecar = await start()
    engine = await sidecar.engine()
    for progress in range(200):
        await engine.report(progress=progress, buckets=eager(*[CAPTURED] * 64))
    await sidecar.until("/readyz", 200)
    for _ in range(20):
        await sidecar.get("/metrics")
    metrics = (await sidecar.get("/metrics"))[1]
    line = next(m for m in metrics.splitlines() if m.startswith("process_resident_memory_bytes"))
    mebibytes = float(line.split()[1]) / 2**20
    print(f"resident memory: {mebibytes:.1f} MiB")
    assert mebibytes < 57, "60 MB is the limit"


async def test_metrics_show_stage_buckets_and_cold_start(start: Start) -> None:
    sidecar = await start()
    engine = await sidecar.engine()
    await engine.report(
        buckets=eager(CAPTURED, CAPTURED, PENDING), ready_seconds=2.5, load=Load(running=3)
    )
    await sidecar.until("/readyz", 503, "WarmingUp")
    metrics = (await sidecar.get("/metrics"))[1]
    for line in (
        "warmgraph_pod_ready 0.0",
        'warmgraph_pod_readiness_reason{reason="WarmingUp"} 1.0',
        'warmgraph_pod_stage{stage="Serving"} 1.0',
        'warmgraph_pod_buckets{kind="decode",mode="eager",state="Captured"} 2.0',
        'warmgraph_pod_buckets{kind="decode",mode="eager",state="Pending"} 1.0',
        "warmgraph_pod_cold_start_seconds 2.5",
        "warmgraph_pod_requests_running 3.0",
    ):
        assert line in metrics.splitlines()
