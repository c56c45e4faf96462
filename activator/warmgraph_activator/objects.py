"""The parts of Kubernetes objects that the activator looks at, and nothing else of them.

Decoding only these keeps a newer resource readable and a thousand pods small.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from warmgraph_api import labels
from warmgraph_api.resource import Activation, Engine, Resource
from warmgraph_api.status import ActivatorStatus, Condition


class Key(NamedTuple):
    """One InferenceDeployment."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Meta(Resource, frozen=True, kw_only=True):
    name: str
    namespace: str
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}


# --- InferenceDeployment


class _Engine(Resource, frozen=True, kw_only=True):
    max_batch_size: int = Engine().max_batch_size


class _Scaling(Resource, frozen=True, kw_only=True):
    activation: Activation = Activation()


class _Spec(Resource, frozen=True, kw_only=True):
    engine: _Engine = _Engine()
    scaling: _Scaling = _Scaling()
    replicas: int = 1


class _Status(Resource, frozen=True, kw_only=True):
    activator: ActivatorStatus = ActivatorStatus()
    conditions: list[Condition] = []


class Deployment(Resource, frozen=True, kw_only=True):
    """An InferenceDeployment."""

    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def port(self) -> int:
        """Port of the activators that stands for it; 0 while it has none."""
        return self.status.activator.port

    def condition(self, kind: str) -> Condition | None:
        """The condition, unless it speaks of an older spec."""
        for condition in self.status.conditions:
            current = condition.observed_generation >= self.metadata.generation
            if condition.type == kind and current:
                return condition
        return None


# --- Pod


class _PodCondition(Resource, frozen=True, kw_only=True):
    type: str
    status: str


class _PodStatus(msgspec.Struct, frozen=True, kw_only=True):
    phase: str = ""
    ip: str = msgspec.field(default="", name="podIP")
    conditions: list[_PodCondition] = []


class Pod(Resource, frozen=True, kw_only=True):
    """A model pod."""

    metadata: _Meta
    status: _PodStatus = _PodStatus()

    @property
    def key(self) -> Key:
        """The InferenceDeployment it belongs to."""
        return Key(self.metadata.namespace, self.metadata.labels.get(labels.DEPLOYMENT, ""))

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def ip(self) -> str:
        return self.status.ip

    @property
    def may_serve(self) -> bool:
        """It has an address and is neither ending nor ended."""
        ending = self.metadata.deletion_timestamp is not None
        return bool(self.ip) and not ending and self.status.phase not in {"Succeeded", "Failed"}

    @property
    def ready(self) -> bool:
        """By its condition, which the kubelet writes up to two seconds after the fact."""
        return any(c.type == "Ready" and c.status == "True" for c in self.status.conditions)


deployment_decoder = msgspec.json.Decoder(Deployment)
pod_decoder = msgspec.json.Decoder(Pod)
