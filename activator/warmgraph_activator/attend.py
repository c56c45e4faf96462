"""While a request waits: keep its deployment awake, and ask its sidecars who is ready.

The kubelet's own way (probe, pod status, endpoints, proxy) takes seconds; asking the sidecars
directly takes a tenth of one. Nothing is asked and nothing is written while nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
import random

import aiohttp
import msgspec

from warmgraph_activator.cluster import CONFLICT, ApiError, Scales
from warmgraph_activator.hold import Hold
from warmgraph_activator.metrics import Metrics
from warmgraph_activator.objects import Key, Pod
from warmgraph_activator.pods import Pods

log = logging.getLogger(__name__)

ASK_SECONDS = 0.1
"""Between two questions to one sidecar: ready → forwarded stays far below half a second."""

ASK_TIMEOUT = aiohttp.ClientTimeout(total=1.0)
"""A sidecar answers from memory within milliseconds; one that doesn't has no say."""

RECHECK_SECONDS = 10.0
"""Between two looks at /scale while requests wait, should the watch have missed a scale-down."""

RETRY_SECONDS = (0.2, 5.0)
"""First and longest pause after a failed wake-up: somebody waits, so the first is short."""


async def attend(
    hold: Hold, *, scales: Scales, session: aiohttp.ClientSession, port: int, metrics: Metrics
) -> None:
    """Serve one deployment until cancelled. `port` is the sidecars'."""
    while True:
        await hold.busy.wait()
        async with asyncio.TaskGroup() as group:
            waking = group.create_task(keep_awake(hold, scales, metrics))
            await ask_sidecars(hold, session, port)
            waking.cancel()
        hold.awake = False


async def keep_awake(hold: Hold, scales: Scales, metrics: Metrics) -> None:
    """Write 1 replica whenever there are 0 and somebody needs a pod; until cancelled."""
    pause, longest = RETRY_SECONDS
    while True:
        if not hold.wanted:
            # Everyone was answered: a scale-down now is right.
            await asyncio.sleep(ASK_SECONDS)
            continue
        # Before the question: a scale-down that is seen after it is news.
        hold.asleep.clear()
        try:
            written = await wake(hold.key, scales)
        except ApiError as error:
            if error.status == CONFLICT:
                # Somebody else wrote; perhaps another activator that did the same.
                await asyncio.sleep(RETRY_SECONDS[0] * random.random())  # noqa: S311
                continue
            metrics.wakes.labels(*hold.key, "failed").inc()
            log.warning("cannot wake %s, trying again: %s", hold.key, error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
            pause = min(2 * pause, longest)
            continue
        if written:
            metrics.wakes.labels(*hold.key, "written").inc()
            log.info("woke %s: %d requests wait", hold.key, hold.line.held)
        pause = RETRY_SECONDS[0]
        hold.awake, hold.knocked = True, False
        try:
            async with asyncio.timeout(RECHECK_SECONDS):
                await hold.asleep.wait()
        except TimeoutError:
            continue


async def wake(key: Key, scales: Scales) -> bool:
    """Make `spec.replicas` 1 if it reads 0. Returns whether it was written.

    Raises ApiError; also when somebody else wrote in between, who may have woken it.
    """
    scale = await scales.read_scale(key)
    if scale.replicas > 0:
        return False
    await scales.write_scale(key, replicas=1, resource_version=scale.resource_version)
    return True


async def ask_sidecars(hold: Hold, session: aiohttp.ClientSession, port: int) -> None:
    """Ask every pod's sidecar, each as often as it answers, until nobody waits."""
    asking: dict[str, asyncio.Task[None]] = {}
    try:
        while hold.wanted:
            for pod in hold.pods.to_ask():
                task = asking.get(pod.name)
                if task is None or task.done():
                    asking[pod.name] = asyncio.create_task(_ask(pod, hold.pods, session, port))
            await asyncio.sleep(ASK_SECONDS)
        hold.busy.clear()
    finally:
        for task in asking.values():
            task.cancel()


class _Readiness(msgspec.Struct):
    ready: bool
    reason: str = ""
    message: str = ""


_readiness = msgspec.json.Decoder(_Readiness)


async def _ask(pod: Pod, pods: Pods, session: aiohttp.ClientSession, port: int) -> None:
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    try:
        async with session.get(f"http://{host}:{port}/readyz", timeout=ASK_TIMEOUT) as response:
            answer = _readiness.decode(await response.read())
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
        pods.on_verdict(pod.name, ready=None, message="")
        return
    pods.on_verdict(pod.name, ready=answer.ready, message=f"{answer.reason}: {answer.message}")
