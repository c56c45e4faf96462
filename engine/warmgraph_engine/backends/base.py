"""What a backend is: memory, a recorder that makes graph images, and a player that replays them.

A graph image is an artifact: bytes that another process, with equal cache key, can load. The
player plays an image the same way whether it was recorded a moment ago or read from the store.
Recorder and eager execution may import heavy libraries when first used; everything else must not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from warmgraph_api.report import StepKind
from warmgraph_engine.answer import Answer
from warmgraph_engine.arena import ArenaLayout, Region
from warmgraph_engine.sampling.sampler import Sampler
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Limits, Step, StepTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphImage:
    """One bucket's graph, as bytes."""

    kind: StepKind
    size: int
    document: bytes
    """The graph in the backend's own format; it refers to memory by region of the arena."""
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    """Kernel binaries that the document refers to, by SHA-256 in hex."""
    answer: Answer | None = None
    """To its known-answer step, from a process in which eager execution agreed. No player needs
    it."""


class ImageError(ValueError):
    """An image cannot be played here: it is damaged, or made for another arena."""


class Recorded(Protocol):
    """What every backend's document says of itself, whatever its nodes are."""

    @property
    def format(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def regions(self) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Type and shape of each region that it refers to."""
        ...


class Regions(Protocol):
    """The memory there is here, by name."""

    def __contains__(self, name: str, /) -> bool: ...
    def __getitem__(self, name: str, /) -> Region: ...


def check_document(
    recorded: Recorded, image: GraphImage, regions: Regions, *, reads_format: int
) -> None:
    """Raises ImageError where a document is of another format or bucket, or for other memory."""
    if recorded.format != reads_format:
        raise ImageError(f"has format {recorded.format}; this engine reads {reads_format}")
    if (recorded.kind, recorded.size) != (image.kind, image.size):
        raise ImageError(f"is of bucket {recorded.kind} {recorded.size}")
    for name, (dtype, shape) in recorded.regions.items():
        if name not in regions:
            raise ImageError(f"refers to {name}, which this model does not have")
        region = regions[name]
        if (region.dtype, region.shape) != (dtype, shape):
            raise ImageError(
                f"was made for {name} {dtype} {shape}, not {region.dtype} {region.shape}"
            )


class CaptureError(RuntimeError):
    """A step cannot be captured; it still runs eagerly."""


class Inputs(Protocol):
    """Where the next step is written to: StaticBuffers, of one process or of several."""

    def fill(self, step: Step, shape: StepShape) -> None:
        """Write a step and the padding up to `shape`, which must hold it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTimes:
    """Seconds of making a graph that were the driver's."""

    instantiate: float
    upload: float


class Graph(Protocol):
    """An image made ready to run."""

    @property
    def bytes(self) -> int:
        """Memory it takes beside the arena, as far as it is known."""
        ...

    @property
    def driver_times(self) -> DriverTimes | None:
        """None where no driver has a part in it."""
        ...

    def replay(self) -> None:
        """Run the step that lies in the static buffers, and leave its logits there. On a GPU this
        waits for nothing, and what goes wrong is told to whoever waits."""
        ...


class Recorder(Protocol):
    def record(self, size: int, shape: StepShape) -> GraphImage:
        """Capture a step of this shape. The static buffers must hold a valid step of it.

        Raises CaptureError, and leaves the backend able to go on.
        """
        ...

    def prepare(self) -> None:
        """Make ready what a later step might have to wait for: kernels that no graph has brought.

        Takes many seconds where there are some, at low priority. Called on a thread of its own,
        while another uses the backend. What fails is left to whoever needs it; raises
        RuntimeError, ValueError or OSError where nothing can be done at all.
        """
        ...


class Player(Protocol):
    def load(self, image: GraphImage) -> Graph:
        """Raises ImageError."""
        ...


class Backend(Protocol):
    """A model with its memory. Used by one thread at a time.

    Steps give numbers once finish_loading() has returned; graphs can be recorded and loaded before,
    since they need to know where the weights are and not what they are.
    """

    @property
    def limits(self) -> Limits: ...
    @property
    def layout(self) -> ArenaLayout: ...
    @property
    def buffers(self) -> Inputs: ...
    @property
    def player(self) -> Player: ...
    @property
    def recorder(self) -> Recorder: ...
    @property
    def sampler(self) -> Sampler:
        """Takes what `result` gives."""
        ...

    @property
    def tolerance(self) -> float:
        """By how much a logit of a graph may differ from eager execution's, relative to the largest
        of its step. 0 where every way to run a step gives the same bits."""
        ...

    @property
    def launches(self) -> int | None:
        """Kernels launched one by one so far, those of graphs not among them; None where there is
        no such thing as a launch."""
        ...

    def finish_loading(self) -> None:
        """Wait until the weights are where they belong. Raises ModelError."""
        ...

    def run_eagerly(self, shape: StepShape) -> None:
        """Run the step that lies in the static buffers, without a graph; as Graph.replay."""
        ...

    def forget_stored(self) -> bool:
        """Record and run eagerly from now on with nothing that stored images have brought along:
        one of them was not what it said. Costs what a start without them does; False if they have
        brought nothing."""
        ...

    def poison_logits(self, rows: int) -> None:
        """Overwrite what lies where the next step is going to leave its own: the first rows of the
        logits with NaN, and tokens with -1. Then it shows what the step leaves."""
        ...

    def poison_kv(self, blocks: int) -> None:
        """Make the keys and values of blocks 1 to `blocks` NaN, in every layer: whatever was there
        can then be mistaken for nothing that the next step should have written."""
        ...

    def logits(self, rows: int) -> Any:
        """The first rows of the logits of the last step, float32 on the host, valid until the next
        one. Waits for it."""
        ...

    def drawn(self) -> Sequence[int] | None:
        """By slot, the tokens that the last step drew itself; None if steps draw none here. Waits
        for it."""
        ...

    def timing(self) -> StepTiming | None:
        """StepResult.timing of the last step. Waits for nothing."""
        ...

    def result(self, rows: int) -> Any:
        """StepResult.logits of the last step. Waits for nothing."""
        ...


def first_line(error: BaseException) -> str:
    """What a library's error says, without the tensors that some print along."""
    return str(error).partition("\n")[0][:200] or type(error).__name__
