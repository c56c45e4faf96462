"""Recording: one real run of the step function, written down operation by operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from warmgraph_engine.backends.base import CaptureError, GraphImage, first_line
from warmgraph_engine.backends.cpu import document
from warmgraph_engine.backends.cpu.memory import CpuArena
from warmgraph_engine.backends.cpu.operations import ALL_REDUCE, OPERATIONS, name_of
from warmgraph_engine.models.steps import StepFunction, StepInputs
from warmgraph_engine.shapes import StepShape


class CpuRecorder:
    """Makes graph images of a step function over an arena."""

    def __init__(self, arena: CpuArena, step: StepFunction) -> None:
        self._arena, self._step = arena, step

    def prepare(self) -> None:
        """Operations need no kernels of ours."""

    def record(self, size: int, shape: StepShape) -> GraphImage:
        """Run the step in the static buffers once, and return it as an image.

        Raises CaptureError if it does something that a replay could not repeat.
        """
        tape = _Tape(self._arena)
        try:
            with torch.inference_mode(), tape:
                self._step(tape, StepInputs(tape, shape))
        except CaptureError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise CaptureError(
                f"the step failed while it was captured: {first_line(error)}"
            ) from error
        recorded = document.Document(
            format=document.FORMAT,
            kind=shape.kind,
            size=size,
            workspace_bytes=tape.workspace_bytes(),
            regions=tape.regions,
            nodes=tape.nodes,
        )
        return GraphImage(kind=shape.kind, size=size, document=document.encode(recorded))


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation below autograd. It is also the Memory that the step function asks, so
    that it knows the arena's tensors by name."""

    def __init__(self, arena: CpuArena) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes: list[document.Node] = []
        self.regions: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._arena = arena
        self._references: dict[int, dict[str, Any]] = {}
        self._alive: list[torch.Tensor] = []  # so that no id is used twice
        self._storages: dict[int, list[int]] = {}  # address: [bytes, first node, last node]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing here is compiled. The default wraps every call so that torch.compile skips it,
        # and for that imports the compiler: several seconds in the first capture.
        return False

    def tensor(self, name: str) -> torch.Tensor:
        tensor = self._arena.tensor(name)
        if name not in self.regions:
            region = self._arena.layout[name]
            self.regions[name] = (region.dtype, region.shape)
            self._references[id(tensor)] = {"region": name}
        return tensor

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        if name not in OPERATIONS:
            raise CaptureError(f"{name} cannot be part of a graph")
        written = [self._argument(name, value) for value in args]
        named = {key: self._argument(name, value) for key, value in kwargs.items()}
        # Nobody's sum is asked for while a step is recorded: a rank whose recording fails leaves
        # the others free, and what is computed from here on belongs to the dummy block.
        result = None if name == ALL_REDUCE else func(*args, **kwargs)
        outputs = result if isinstance(result, (list, tuple)) else (result,)
        out = [self._value(tensor) for tensor in outputs if isinstance(tensor, torch.Tensor)]
        fresh = [value for value in out if value is not None]
        if fresh and len(fresh) != len(out):
            raise CaptureError(f"{name} returns both a new tensor and one it was given")
        self._note_storages((*args, *kwargs.values(), *outputs))
        self.nodes.append(document.Node(op=name, args=written, kwargs=named, out=fresh))
        return result

    def _argument(self, operation: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._references:
                raise CaptureError(f"{operation} reads a tensor from outside the arena")
            return self._references[id(value)]
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, (list, tuple)):
            if any(isinstance(item, torch.Tensor) for item in value):
                raise CaptureError(f"{operation} takes a list of tensors")
            return [self._argument(operation, item) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise CaptureError(f"{operation} has an argument of type {type(value).__name__}")

    def _value(self, tensor: torch.Tensor) -> int | None:
        """The number of a new value; None if the tensor is one that is known already."""
        if id(tensor) in self._references:
            return None
        number = len(self._alive)
        self._alive.append(tensor)
        self._references[id(tensor)] = {"value": number}
        return number

    def _note_storages(self, values: Sequence[Any]) -> None:
        now = len(self.nodes)
        for tensor in values:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                entry = self._storages.setdefault(storage.data_ptr(), [storage.nbytes(), now, now])
                entry[2] = now

    def workspace_bytes(self) -> int:
        """Most bytes outside the arena in use at one node, each tensor from its first to its last
        use."""
        changes: dict[int, int] = {}
        arena = {tensor.untyped_storage().data_ptr() for tensor in map(self.tensor, self.regions)}
        for address, (size, first, last) in self._storages.items():
            if address not in arena:
                changes[first] = changes.get(first, 0) + size
                changes[last + 1] = changes.get(last + 1, 0) - size
        most = now = 0
        for node in sorted(changes):
            now += changes[node]
            most = max(most, now)
        return most
