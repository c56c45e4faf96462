"""Recording: a step's launches, compiled and written down.

Nothing has to run for it, and no stream captures it: the launches are known by construction, and
so is every pointer in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from warmgraph_engine.arena import Region
from warmgraph_engine.backends.base import CaptureError, GraphImage
from warmgraph_engine.backends.cuda import document
from warmgraph_engine.backends.cuda.compiler import Compiler
from warmgraph_engine.backends.cuda.launch import Argument, Launch, Pointer
from warmgraph_engine.shapes import StepShape


class CudaRecorder:
    """Makes graph images of a model's steps."""

    def __init__(
        self,
        compiler: Compiler,
        regions: Mapping[str, Region],
        program: Callable[[StepShape], Sequence[Launch]],
        usual: Sequence[StepShape] = (),
    ) -> None:
        """`usual` shapes need, between them, every kernel that a step of this model may need:
        they are compiled together as soon as anything is, so that no request waits for it."""
        self._compiler, self._regions, self._program = compiler, regions, program
        self._usual = usual

    def prepare(self) -> None:
        self._compiler.compile_beside(
            launch for shape in self._usual for launch in self._program(shape)
        )

    def record(self, size: int, shape: StepShape) -> GraphImage:
        """Raises CaptureError."""
        try:
            launches = self._program(shape)
            if self._usual and not self._compiler.knows(launches):
                usual, self._usual = self._usual, ()
                self._compiler.compile_together(
                    launch for each in (*usual, shape) for launch in self._program(each)
                )
            binaries = [self._compiler.compile(launch) for launch in launches]
        except (RuntimeError, ValueError, KeyError, OSError) as error:  # a full disk among them
            raise CaptureError(f"its kernels could not be compiled: {error}") from error
        kernels: dict[document.Kernel, int] = {}
        nodes = [
            document.Node(
                kernel=kernels.setdefault(binary.kernel, len(kernels)),
                grid=launch.grid,
                arguments=_arguments(launch, binary.kernel),
                overlaps=launch.overlaps,
            )
            for launch, binary in zip(launches, binaries, strict=True)
        ]
        used = {
            value.region
            for launch in launches
            for value in launch.arguments.values()
            if isinstance(value, Pointer)
        }
        regions = {name: self._regions[name] for name in sorted(used)}
        recorded = document.Document(
            format=document.FORMAT,
            kind=shape.kind,
            size=size,
            regions={name: (region.dtype, region.shape) for name, region in regions.items()},
            kernels=list(kernels),
            nodes=nodes,
        )
        return GraphImage(
            kind=shape.kind,
            size=size,
            document=document.encode(recorded),
            binaries={binary.kernel.binary: binary.code for binary in binaries},
        )


def _arguments(launch: Launch, kernel: document.Kernel) -> list[tuple[str, str | int | float]]:
    arguments = [_argument(launch.arguments[name]) for name in kernel.parameters]
    return [*arguments, *document.SCRATCH]


def _argument(value: Argument) -> tuple[str, str | int | float]:
    if isinstance(value, Pointer):
        return ("region", value.region)
    return ("i32", value) if isinstance(value, int) else ("f32", value)
