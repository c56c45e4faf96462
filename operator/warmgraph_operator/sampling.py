"""Looking at pods between passes, without the API server.

The autoscaler needs samples every couple of seconds and a warmup's progress is worth showing as it
happens; a pass with its dozen reads for each would be waste. A sampler asks the pods that the last
pass saw, and says when a pass is due because something changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from warmgraph_api.report import Load, PodState
from warmgraph_api.resource import Autoscaler
from warmgraph_operator.activators import Activators, View
from warmgraph_operator.observed import Observed
from warmgraph_operator.reports import PodReader
from warmgraph_operator.resource import InferenceDeployment, Key
from warmgraph_operator.scale.decide import Decision, Inputs, Memory, decide, written
from warmgraph_operator.scale.inputs import inputs, settled
from warmgraph_operator.status.facts import Facts

STARTING_SECONDS = 1.0
"""While a pod starts: a new report comes at least every second."""

SERVING_SECONDS = 2.0
"""While pods serve: how late the autoscaler may notice a burst."""


class Autoscaling:
    """The autoscaler's memory of every resource."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._memories: dict[Key, Memory] = {}

    def decide(self, infd: InferenceDeployment, sample: Inputs) -> Decision:
        memory = self._memories.get(infd.key, Memory())
        decision = decide(self._clock(), infd.spec.scaling, sample, memory)
        self._memories[infd.key] = decision.memory
        return decision

    def wrote(self, key: Key, replicas: int) -> None:
        """A decision was written: the next sample's number is the operator's own."""
        self._memories[key] = written(self._memories.get(key, Memory()), replicas)

    def rest(self, key: Key) -> None:
        """Somebody else has the say: what sufficed before is no reason afterwards."""
        if key in self._memories:
            self._memories[key] = Memory(replicas=self._memories[key].replicas)

    def forget(self, key: Key) -> None:
        self._memories.pop(key, None)


@dataclass(kw_only=True)
class Sampler:
    """What the last pass saw, to compare with."""

    infd: InferenceDeployment
    observed: Observed
    facts: Facts
    view: View
    may_scale: bool
    activators: Activators
    reader: PodReader
    autoscaling: Autoscaling

    @property
    def seconds(self) -> float:
        """Until the next sample."""
        all_ready = len(self.facts.ready) == len(self.facts.live)
        return SERVING_SECONDS if all_ready else STARTING_SECONDS

    def decide(self, states: Mapping[str, PodState] | None = None) -> Decision | None:
        """The autoscaler's word on these states, or on those of the pass; None where it has no
        say."""
        if not self.may_scale or self.infd.spec.scaling.autoscaler is not Autoscaler.BUILT_IN:
            self.autoscaling.rest(self.infd.key)
            return None
        sample = inputs(
            self.infd,
            self.observed,
            self.observed.reports if states is None else states,
            self.view,
            settled=settled(self.facts),
            can_wake=self.facts.decided.port > 0,
        )
        return self.autoscaling.decide(self.infd, sample)

    async def due(self) -> bool:
        """Take one sample. True if a pass is due."""
        states = await self.reader.states(self.facts.live)
        addresses, self.view = self.view.addresses, await self.activators.view()
        if addresses != self.view.addresses:
            return True
        if _faces(states) != _faces(self.observed.reports, only=self.facts):
            return True
        decision = self.decide(states)
        return decision is not None and decision.replicas != self.infd.spec.replicas


def _faces(states: Mapping[str, PodState], *, only: Facts | None = None) -> dict[str, PodState]:
    """The states without what changes all the time."""
    names = states if only is None else {pod["metadata"]["name"] for pod in only.live}
    return {name: _face(state) for name, state in states.items() if name in names}


def _face(state: PodState) -> PodState:
    report = state.report
    if report is None:
        return msgspec.structs.replace(state, message="")
    still = msgspec.structs.replace(report, sequence=0, progress=0, load=Load())
    return msgspec.structs.replace(state, message="", report=still)
