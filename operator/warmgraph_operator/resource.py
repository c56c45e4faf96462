"""An InferenceDeployment as the operator handles it: decoded, with its identity."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from warmgraph_api import labels
from warmgraph_api.resource import ObjectMeta, Spec
from warmgraph_api.status import Status
from warmgraph_operator.kinds import Object


class Key(NamedTuple):
    """Which InferenceDeployment."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class InferenceDeployment(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: Spec
    status: Status = msgspec.field(default_factory=Status)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def selector(self) -> str:
        """Label selector of its pods, and of everything made for it."""
        return f"{labels.DEPLOYMENT}={self.metadata.name}"

    @property
    def being_deleted(self) -> bool:
        return bool(self.metadata.deletion_timestamp)


def decode(resource: Object) -> InferenceDeployment:
    """Raises msgspec.ValidationError where the object does not fit the types, which the CRD's
    schema rules out unless CRD and operator are of different versions."""
    return msgspec.convert(resource, InferenceDeployment)
