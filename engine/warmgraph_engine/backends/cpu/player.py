"""Playing: a document prepared once, then run as a flat loop over operations.

No Python of the model runs in a replay. Arguments lie in numbered slots, views of the arena are
made when the graph is loaded, and a slot is emptied after its last use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec
import torch

from warmgraph_engine.backends.base import GraphImage, ImageError, check_document, first_line
from warmgraph_engine.backends.cpu import document
from warmgraph_engine.backends.cpu.memory import DTYPES, CpuArena
from warmgraph_engine.backends.cpu.operations import OPERATIONS, SEVERAL, VIEWS, parameters

_WRITABLE = ("kv.", "buffers.logits")

_Run = tuple[Callable[..., Any], Callable[[list[Any]], tuple[Any, ...]], int | list[int] | None]


class CpuPlayer:
    """Loads images over one arena."""

    def __init__(self, arena: CpuArena) -> None:
        self._arena = arena

    def load(self, image: GraphImage) -> CpuGraph:
        """Raises ImageError: damaged, of another bucket, or made for other memory."""
        try:
            recorded = document.decode(image.document)
        except msgspec.MsgspecError as error:
            raise ImageError(f"is damaged: {error}") from error
        check_document(recorded, image, self._arena.layout, reads_format=document.FORMAT)
        try:
            with torch.inference_mode():
                return _Builder(self._arena, recorded).build()
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise ImageError(f"has an unusable node: {first_line(error)}") from error


class CpuGraph:
    """One bucket's program."""

    driver_times = None

    def __init__(
        self, program: list[tuple[_Run, list[int]]], slots: list[Any], workspace_bytes: int
    ) -> None:
        self._program, self._slots = program, slots
        self.bytes = workspace_bytes

    def replay(self) -> None:
        try:
            with torch.inference_mode():
                self._run(self._slots)
        except (TypeError, AttributeError, OverflowError) as error:  # nobody recorded this program
            raise RuntimeError(first_line(error)) from error

    def _run(self, slots: list[Any]) -> None:
        for (operation, arguments, out), finished in self._program:
            if out is None:
                operation(*arguments(slots))
            elif isinstance(out, int):
                slots[out] = operation(*arguments(slots))
            else:
                for slot, value in zip(out, operation(*arguments(slots)), strict=True):
                    slots[slot] = value
            for slot in finished:
                slots[slot] = None


class _Builder:
    def __init__(self, arena: CpuArena, recorded: document.Document) -> None:
        self._arena, self._recorded = arena, recorded
        self._slots: list[Any] = []
        self._values: dict[int, int] = {}  # value of the document: slot
        self._static: set[int] = set()  # slots that hold the same at every replay
        self._regions: dict[int, str] = {}  # slots that are memory of the arena, and whose

    def build(self) -> CpuGraph:
        program: list[tuple[_Run, set[int]]] = []
        for node in self._recorded.nodes:
            arguments = [self._slot(argument) for argument in node.args]
            operation = OPERATIONS[node.op]
            constants = {name: self._constant(value) for name, value in node.kwargs.items()}
            self._check_writes(node, arguments)
            function = partial(operation, **constants) if constants else operation
            if node.op in VIEWS and self._static.issuperset(arguments):
                result = function(*(self._slots[slot] for slot in arguments))
                out = self._define(node, result if isinstance(result, (list, tuple)) else [result])
                self._note_views(node, arguments, out)
                continue
            out = [self._new(None) for _ in node.out]
            self._values.update(zip(node.out, out, strict=True))
            self._note_views(node, arguments, out)
            place = None if not out else out if node.op in SEVERAL else out[0]
            program.append(((function, _getter(arguments), place), {*arguments, *out}))
        return CpuGraph(self._with_frees(program), self._slots, self._recorded.workspace_bytes)

    def _with_frees(self, program: list[tuple[_Run, set[int]]]) -> list[tuple[_Run, list[int]]]:
        seen = set(self._static)
        result: list[tuple[_Run, list[int]]] = []
        for run, used in reversed(program):
            result.append((run, sorted(used - seen)))
            seen |= used
        return result[::-1]

    def _define(self, node: document.Node, results: Any) -> list[int]:
        slots = [self._new(tensor) for tensor in results]
        self._values.update(zip(node.out, slots, strict=True))
        self._static.update(slots)
        return slots

    def _note_views(self, node: document.Node, arguments: list[int], out: list[int]) -> None:
        if node.op in VIEWS and arguments[0] in self._regions:
            self._regions.update(dict.fromkeys(out, self._regions[arguments[0]]))

    def _check_writes(self, node: document.Node, arguments: list[int]) -> None:
        """A step leaves keys, values and logits. A program that wrote anywhere else would change
        the model, or the step, for whoever comes after it."""
        taken = parameters(node.op)
        # Python's bindings take more than the operation: `out` here, `inplace` there.
        names = [name for name, parameter in taken.items() if not parameter.kwarg_only]
        if len(arguments) > len(names) or not taken.keys() >= node.kwargs.keys():
            raise ValueError(f"{node.op} does not take these arguments")
        places = dict(zip(names, arguments, strict=False))
        places |= {name: self._slot(value) for name, value in node.kwargs.items()}
        for name, slot in places.items():
            alias = taken[name].alias_info
            region = self._regions.get(slot, "")
            written = alias is not None and alias.is_write
            if written and region and not region.startswith(_WRITABLE):
                raise ValueError(f"{node.op} writes to {region}")

    def _new(self, content: Any) -> int:
        self._slots.append(content)
        return len(self._slots) - 1

    def _slot(self, argument: Any) -> int:
        """The slot of an argument: an earlier value's, or a new one that holds it for ever."""
        if isinstance(argument, dict) and "value" in argument:
            return self._values[argument["value"]]
        slot = self._new(self._constant(argument))
        self._static.add(slot)
        if isinstance(argument, dict) and "region" in argument:
            self._regions[slot] = argument["region"]
        return slot

    def _constant(self, argument: Any) -> Any:
        if isinstance(argument, dict):
            ((kind, name),) = argument.items()
            if kind == "region":
                if name not in self._recorded.regions:  # then nobody has compared its shape
                    raise ValueError(f"it does not list the region {name}")
                return self._arena.tensor(name)
            if kind == "dtype":
                return DTYPES[name]
            slot = self._values[name]
            if kind != "value" or slot not in self._static:
                raise ValueError(f"argument {argument} changes between replays")
            return self._slots[slot]
        if isinstance(argument, list):
            return [self._constant(item) for item in argument]
        return argument


def _getter(slots: list[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Picks the arguments of an operation out of the slots."""
    if len(slots) == 1:
        only = slots[0]
        return lambda values: (values[only],)
    getter: Callable[[list[Any]], tuple[Any, ...]] = itemgetter(*slots)
    return getter
