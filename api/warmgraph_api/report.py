"""The warmup report: what an engine says of itself, and what the sidecar passes on.

The engine publishes it over a Unix socket (wire.py) on every change and at least once a second;
the sidecar applies the resource's policy to it and serves it as `GET /warmup`; the operator and
the activator read that. Times are seconds since the epoch where the name ends in `_at`, and
durations in seconds where it ends in `_seconds`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Report(msgspec.Struct, rename="camel", frozen=True):
    """Base of the types below: camelCase on the wire; unknown fields are ignored, so that a
    newer engine and an older sidecar still understand each other."""


class Stage(StrEnum):
    """Where a start is, in order. The later ones are states rather than steps."""

    STARTING = "Starting"
    LOADING_MODEL = "LoadingModel"
    RESTORING = "Restoring"
    CAPTURING = "Capturing"
    CHECKING = "Checking"
    SERVING = "Serving"
    DRAINING = "Draining"
    FAILED = "Failed"


class StepKind(StrEnum):
    DECODE = "decode"
    PREFILL = "prefill"
    VERIFY = "verify"


class BucketMode(StrEnum):
    EAGER = "eager"
    LAZY = "lazy"


class BucketState(StrEnum):
    PENDING = "Pending"
    CAPTURING = "Capturing"
    CAPTURED = "Captured"
    RESTORED = "Restored"
    FALLBACK = "Fallback"
    """Its capture failed; its steps run eagerly or in a larger bucket."""


WARM_STATES = frozenset({BucketState.CAPTURED, BucketState.RESTORED})


class Bucket(Report, frozen=True, kw_only=True):
    """One bucket and how far it is."""

    kind: StepKind
    size: int
    """Sequences of a decode or verify step, tokens of a prefill chunk."""
    mode: BucketMode
    state: BucketState = BucketState.PENDING
    seconds: float = 0.0
    """Time the capture or the restore took."""
    bytes: int = 0
    """Memory the graph takes, as far as it is known."""
    reason: str = ""
    """Why it is in Fallback, or empty."""
    hits: int = 0
    """Steps that wanted it in earlier processes, as far as the graph cache remembers."""


class CacheResult(StrEnum):
    PENDING = "Pending"
    HIT = "Hit"
    MISS = "Miss"
    REFUSED = "Refused"
    DISABLED = "Disabled"


class Cache(Report, frozen=True, kw_only=True):
    """How the lookup in the graph cache went."""

    result: CacheResult = CacheResult.PENDING
    key: str = ""
    """Digest of this engine's cache key."""
    field: str = ""
    """On a miss beside other entries, or a refusal: the key field that differs."""
    message: str = ""
    """The same for people: the field with both its values, or why an entry was refused."""
    published: bool = False
    """This engine has written its own entry."""


class Span(Report, frozen=True, kw_only=True):
    """One stage of the cold start. Stages may overlap."""

    name: str
    start_seconds: float
    """After the process started."""
    seconds: float


class CheckState(StrEnum):
    PENDING = "Pending"
    PASSED = "Passed"
    FAILED = "Failed"
    SKIPPED = "Skipped"


class Check(Report, frozen=True, kw_only=True):
    """The known-answer check."""

    state: CheckState = CheckState.PENDING
    message: str = ""


class Fault(Report, frozen=True, kw_only=True):
    """Why this engine cannot serve, or cannot any more."""

    reason: str
    message: str


class Load(Report, frozen=True, kw_only=True):
    """What the engine is doing right now."""

    running: int = 0
    waiting: int = 0
    idle_seconds: float = 0.0
    """Since the last request ended, or since serving began; 0 while there is any."""
    requests_total: int = 0
    """Requests accepted since the process started."""

    @property
    def in_flight(self) -> int:
        return self.running + self.waiting


class WarmupReport(Report, frozen=True, kw_only=True):
    """Everything an engine says of itself."""

    boot_id: str
    """One value per engine process: a new one means the engine was restarted."""
    sequence: int
    """Grows with every report of one boot."""
    progress: int
    """Grows whenever the start moved: a tensor group loaded, a bucket captured. A report that
    comes with an old `progress` shows a live process whose warmup stands still."""
    stage: Stage
    message: str = ""
    model: str = ""
    revision: str = ""
    """The model's revision as given to the engine."""
    started_at: float
    """When the process was started, seconds since the epoch."""
    ready_seconds: float | None = None
    """From the process start to the end of the warmup that readiness waits for."""
    buckets: list[Bucket] = []
    cache: Cache = msgspec.field(default_factory=Cache)
    check: Check = msgspec.field(default_factory=Check)
    timeline: list[Span] = []
    load: Load = msgspec.field(default_factory=Load)
    fault: Fault | None = None


class PodState(Report, frozen=True, kw_only=True):
    """Answer of the sidecar's `GET /warmup`: its own verdict and the engine's last report."""

    ready: bool
    reason: str
    """A word of reasons.Reason: why it is ready or not."""
    message: str
    draining: bool = False
    engine_connected: bool = False
    engine_restarts: int = 0
    ready_at: float | None = None
    """When this pod first became ready, seconds since the epoch."""
    report: WarmupReport | None = None
