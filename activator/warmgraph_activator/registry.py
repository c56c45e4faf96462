"""Everything the activator knows of the cluster: a Hold per deployment, each with its pods.

The two reflectors write here. Pods and resources come in any order, so pods whose deployment is
not known yet are kept until it is.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

from warmgraph_activator.hold import Hold
from warmgraph_activator.objects import Deployment, Key, Pod
from warmgraph_activator.refusal import Outcome, Refusal


class Registry:
    """`added` and `removed` are called with each Hold that begins or ends."""

    def __init__(
        self,
        *,
        added: Callable[[Hold], None],
        removed: Callable[[Hold], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._added = added
        self._removed = removed
        self._clock = clock
        self._holds: dict[Key, Hold] = {}
        self._pods: defaultdict[Key, dict[str, Pod]] = defaultdict(dict)
        self.ports_changed = asyncio.Event()

    def __iter__(self) -> Iterator[Hold]:
        return iter(list(self._holds.values()))

    def ports(self) -> dict[int, Hold]:
        """Which port stands for which deployment."""
        return {h.deployment.port: h for h in self._holds.values() if h.deployment.port}

    def close(self, refusal: Refusal) -> None:
        """Nobody may wait any more, anywhere."""
        for hold in self:
            hold.close(refusal)

    # --- InferenceDeployments

    def put_deployment(self, deployment: Deployment) -> None:
        hold = self._holds.get(deployment.key)
        if hold is None:
            hold = Hold(deployment, clock=self._clock)
            self._holds[deployment.key] = hold
            for pod in self._pods[deployment.key].values():
                hold.pods.put(pod)
            self._added(hold)
        else:
            hold.update(deployment)
        self.ports_changed.set()

    def remove_deployment(self, key: Key) -> None:
        hold = self._holds.pop(key, None)
        if hold is None:
            return
        hold.close(Refusal(Outcome.DEPLOYMENT_DELETED, f"{key} was deleted"))
        self._removed(hold)
        self.ports_changed.set()

    # --- pods

    def put_pod(self, pod: Pod) -> None:
        self._pods[pod.key][pod.name] = pod
        hold = self._holds.get(pod.key)
        if hold is not None:
            hold.pods.put(pod)

    def remove_pod(self, key: Key, name: str) -> None:
        self._pods[key].pop(name, None)
        if not self._pods[key]:
            del self._pods[key]
        hold = self._holds.get(key)
        if hold is not None:
            hold.pods.remove(name)

    def pods_in(self, namespace: str) -> list[Pod]:
        """Of one namespace, or of all if it is empty."""
        return [
            pod
            for key, pods in self._pods.items()
            for pod in pods.values()
            if namespace in ("", key.namespace)
        ]


class DeploymentSink:
    """The resources of one namespace, or of all if it is empty."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._registry = registry
        self._namespace = namespace

    def replace(self, objects: list[Deployment]) -> None:
        names = {d.key for d in objects}
        for hold in self._registry:
            if self._namespace in ("", hold.key.namespace) and hold.key not in names:
                self._registry.remove_deployment(hold.key)
        for deployment in objects:
            self._registry.put_deployment(deployment)

    def put(self, value: Deployment) -> None:
        self._registry.put_deployment(value)

    def remove(self, value: Deployment) -> None:
        self._registry.remove_deployment(value.key)


class PodSink:
    """The model pods of one namespace, or of all if it is empty."""

    def __init__(self, registry: Registry, namespace: str) -> None:
        self._registry = registry
        self._namespace = namespace

    def replace(self, objects: list[Pod]) -> None:
        names = {(p.key, p.name) for p in objects}
        for pod in self._registry.pods_in(self._namespace):
            if (pod.key, pod.name) not in names:
                self._registry.remove_pod(pod.key, pod.name)
        for pod in objects:
            self._registry.put_pod(pod)

    def put(self, value: Pod) -> None:
        self._registry.put_pod(value)

    def remove(self, value: Pod) -> None:
        self._registry.remove_pod(value.key, value.name)
