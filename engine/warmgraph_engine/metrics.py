"""What the engine counts about requests and scheduling, for Prometheus.

Steps, buckets and graphs are counted by the executor, in the same registry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import eq

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from warmgraph_engine.histogram import Histogram
from warmgraph_engine.step import StepTimes

# A replayed decode step takes 1 to 50 ms, a prefill chunk up to a second on a CPU.
_ITL_BUCKETS = (
    *(0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05),
    *(0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5),
)
# From a short prompt on an idle GPU to a full queue on a CPU.
_TTFT_BUCKETS = (
    *(0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0),
    *(2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 60.0),
)
_REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class Outcome(StrEnum):
    """How a request ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    """The client went away."""
    INVALID = "invalid"
    """Refused with a 4xx."""
    OVERLOADED = "overloaded"
    """Refused with 429: too many requests wait."""
    UNAVAILABLE = "unavailable"
    """Refused with 503: not serving yet, or not any more."""
    FAILED = "failed"
    """The engine failed while it ran."""


class EngineMetrics:
    """All series exist from the start, so that a rate over them has no gap."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "warmgraph_requests",
            "Generation requests that ended, by outcome.",
            ["outcome"],
            registry=registry,
        )
        for outcome in Outcome:
            self.requests.labels(outcome)
        self.prompt_tokens = Counter(
            "warmgraph_prompt_tokens", "Tokens of accepted prompts.", registry=registry
        )
        self.generated_tokens = Counter(
            "warmgraph_generated_tokens", "Tokens generated and delivered.", registry=registry
        )
        self.first_token = Histogram(
            "warmgraph_time_to_first_token_seconds",
            "From a request's acceptance to its first token.",
            buckets=_TTFT_BUCKETS,
            registry=registry,
        )
        self.inter_token = Histogram(
            "warmgraph_inter_token_latency_seconds",
            "Between two tokens of one output.",
            buckets=_ITL_BUCKETS,
            registry=registry,
        )
        self.request_seconds = Histogram(
            "warmgraph_request_seconds",
            "From a completed request's acceptance to its last byte.",
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self.preemptions = Counter(
            "warmgraph_preemptions",
            "Sequences taken out of the KV cache to be computed again.",
            registry=registry,
        )
        self.drafts = Counter(
            "warmgraph_spec_decode_drafts",
            "Times that tokens were drafted for a sequence.",
            registry=registry,
        )
        self.draft_tokens = Counter(
            "warmgraph_spec_decode_draft_tokens", "Tokens drafted.", registry=registry
        )
        self.accepted_tokens = Counter(
            "warmgraph_spec_decode_accepted_tokens",
            "Drafted tokens that the model confirmed.",
            registry=registry,
        )
        self.gpu_busy_seconds = Counter(
            "warmgraph_gpu_busy_seconds",
            "Time of steps on the GPU, each from its first kernel to its last.",
            registry=registry,
        )
        self.gpu_idle_seconds = Counter(
            "warmgraph_gpu_idle_seconds",
            "Time between steps on the GPU while there were requests to run.",
            registry=registry,
        )
        gauges = {
            "running_sequences": "Sequences that hold KV blocks.",
            "waiting_sequences": "Sequences that wait for KV blocks or a place in the batch.",
            "requests_in_flight": "Requests accepted whose last byte was not sent yet.",
            "kv_blocks": "KV blocks that sequences may use.",
            "kv_blocks_used": "KV blocks in use.",
        }
        self._gauge = {
            name: Gauge(f"warmgraph_{name}", text, registry=registry)
            for name, text in gauges.items()
        }

    def note_drafts(self, drafts: Sequence[int], tokens: Sequence[int]) -> None:
        """Count what was drafted for one sequence in one step, beside what its output got."""
        self.drafts.inc()
        self.draft_tokens.inc(len(drafts))
        self.accepted_tokens.inc(sum(map(eq, drafts, tokens)))

    def note_times(self, times: StepTimes, *, follows: bool) -> None:
        """Count a step's times; those before it too if it `follows` another one's requests."""
        self.gpu_busy_seconds.inc(times.busy_seconds)
        if follows:
            self.gpu_idle_seconds.inc(times.idle_seconds)

    def watch(self, **readers: Callable[[], float]) -> None:
        """Read these gauges when the metrics are scraped."""
        for name, read in readers.items():
            self._gauge[name].set_function(read)
