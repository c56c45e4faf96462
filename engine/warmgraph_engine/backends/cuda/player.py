"""Playing: documents to CUDA graphs, and launches one by one, with the driver alone."""

from __future__ import annotations

import gc
import hashlib
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import msgspec
from cuda.bindings import driver as cuda

from warmgraph_engine.backends.base import DriverTimes, GraphImage, ImageError, check_document
from warmgraph_engine.backends.cuda import document, quick
from warmgraph_engine.backends.cuda.driver import CudaError, Device, check
from warmgraph_engine.backends.cuda.memory import Addresses
from warmgraph_engine.backends.cuda.parameters import Parameters, Words
from warmgraph_engine.backends.cuda.turns import Turns

_STATIC_SHARED_BYTES = 48 << 10
"""A function that wants more has to say so before it is launched."""


class CudaPlayer:
    """Loads images over one arena."""

    def __init__(
        self,
        device: Device,
        sets: Sequence[Addresses],
        turns: Turns,
        *,
        on_kernel: Callable[[document.Kernel, bytes], None] = lambda *_: None,
    ) -> None:
        """`sets` differ in the addresses of the host's buffers. `on_kernel` is told of every kernel
        of an image that can be played, and its code."""
        self._device, self._sets, self._turns, self._on_kernel = device, sets, turns, on_kernel
        self._modules: dict[str, Any] = {}
        self._functions: dict[document.Kernel, Any] = {}
        self._configs: dict[_Shape, Any] = {}
        self._words = [Words(addresses.by_name) for addresses in sets]
        self._host = {("region", name) for name in sets[0].regions if name.startswith("host.")}

    def load(self, image: GraphImage) -> CudaGraph:
        """Raises ImageError: damaged, of another bucket, or made for other memory."""
        recorded = self._checked(image)
        launches = self._launches(recorded, image.binaries)
        device = self._device
        before = device.free_bytes()
        try:
            executable, times = self._executable(launches)
        except CudaError as error:
            raise ImageError(f"was refused by the driver: {error}") from error
        self._tell(recorded, image.binaries)
        return CudaGraph(launches, executable, max(0, before - device.free_bytes()), times)

    def _executable(self, launches: CudaLaunches) -> tuple[Any, DriverTimes]:
        """A graph of the launches on the device, which the caller owns. Raises CudaError."""
        graph = launches.capture()
        began = time.monotonic()
        try:
            executable = check(cuda.cuGraphInstantiate(graph, 0))
        finally:
            check(cuda.cuGraphDestroy(graph))
        instantiated = time.monotonic()
        try:
            check(cuda.cuGraphUpload(executable, self._device.stream))
            self._device.synchronize()
        except CudaError:
            cuda.cuGraphExecDestroy(executable)  # not checked: what failed first is told
            raise
        uploaded = time.monotonic()
        return executable, DriverTimes(
            instantiate=instantiated - began, upload=uploaded - instantiated
        )

    def prepare(self, image: GraphImage) -> CudaLaunches:
        """The same launches, to be made one by one. Raises ImageError."""
        recorded = self._checked(image)
        launches = self._launches(recorded, image.binaries)
        self._tell(recorded, image.binaries)
        return launches

    def _tell(self, recorded: document.Document, binaries: Mapping[str, bytes]) -> None:
        """Only what an image that was not refused says of its kernels may be used elsewhere."""
        for kernel in recorded.kernels:
            self._on_kernel(kernel, binaries[kernel.binary])

    def _launches(self, recorded: document.Document, binaries: Mapping[str, bytes]) -> CudaLaunches:
        """Raises ImageError."""
        reading = [not self._host.isdisjoint(node.arguments) for node in recorded.nodes]
        inputs = sum(reading)
        if any(reading[inputs:]):
            raise ImageError("reads the host's buffers after its first kernels")
        self._device.use()
        try:
            functions = [self._function(kernel, binaries) for kernel in recorded.kernels]

            def made(nodes: Sequence[document.Node], words: Words) -> _Launches:
                return _Launches(
                    [self._config(node, recorded.kernels[node.kernel]) for node in nodes],
                    [functions[node.kernel] for node in nodes],
                    Parameters([node.arguments for node in nodes], words),
                )

            return CudaLaunches(
                self._device,
                self._turns,
                inputs=[made(recorded.nodes[:inputs], words) for words in self._words],
                nodes=made(recorded.nodes[inputs:], self._words[0]),
            )
        except (KeyError, IndexError, TypeError, OverflowError, struct.error, CudaError) as error:
            raise ImageError(f"has an unusable node: {error!r}") from error

    def _checked(self, image: GraphImage) -> document.Document:
        try:
            recorded = document.decode(image.document)
        except msgspec.MsgspecError as error:
            raise ImageError(f"is damaged: {error}") from error
        check_document(recorded, image, self._sets[0].regions, reads_format=document.FORMAT)
        _check_nodes(recorded)
        return recorded

    def _function(self, kernel: document.Kernel, binaries: Mapping[str, bytes]) -> Any:
        binary = binaries[kernel.binary]
        if kernel in self._functions:
            return self._functions[kernel]
        if kernel.binary not in self._modules:
            # The driver is not told the length, and trusts what it reads.
            if hashlib.sha256(binary).hexdigest() != kernel.binary:
                raise ImageError(f"has a damaged binary for kernel {kernel.name}")
            self._modules[kernel.binary] = check(cuda.cuModuleLoadData(binary))
        module = self._modules[kernel.binary]
        function = check(cuda.cuModuleGetFunction(module, kernel.name.encode()))
        if kernel.shared_bytes > _STATIC_SHARED_BYTES:
            attribute = cuda.CUfunction_attribute
            name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cuda.cuFuncSetAttribute(function, name, kernel.shared_bytes))
        self._functions[kernel] = function
        return function

    def _config(self, node: document.Node, kernel: document.Kernel) -> Any:
        """Shared by all launches of its shape: making one costs more than a launch."""
        shape = (node.grid, kernel.threads, kernel.shared_bytes, node.overlaps)
        if shape not in self._configs:
            self._configs[shape] = _launch_config(*shape, self._device.stream)
        return self._configs[shape]


def _check_nodes(recorded: document.Document) -> None:
    """Raises ImageError for what nobody would notice before the kernels run."""
    for node in recorded.nodes:
        if not 0 <= node.kernel < len(recorded.kernels):
            raise ImageError(f"has an unusable node: there is no kernel {node.kernel}")
        kernel = recorded.kernels[node.kernel]
        taken = len(kernel.parameters) + len(document.SCRATCH)
        if len(node.arguments) != taken:
            # The driver is not told how many there are, and reads as many as the kernel takes.
            raise ImageError(
                f"has an unusable node: {kernel.name} takes {taken} arguments,"
                f" not {len(node.arguments)}"
            )
    for kind, name in set(chain.from_iterable(node.arguments for node in recorded.nodes)):
        if kind == "region" and name not in recorded.regions:
            # Then nobody has compared its type and shape.
            raise ImageError(f"has an unusable node: it does not list the region {name}")


_Shape = tuple[tuple[int, int, int], int, int, bool]
"""Grid, threads of a block, bytes of shared memory, and whether it may overlap the one before."""


def _launch_config(
    grid: tuple[int, int, int], threads: int, shared_bytes: int, overlaps: bool, stream: Any
) -> Any:
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared_bytes
    config.hStream = stream
    if overlaps:
        attribute = cuda.CUlaunchAttribute()
        attribute.id = (
            cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.attrs, config.numAttrs = [attribute], 1
    return config


class _Launches:
    """Launches with their parameters where the driver reads them."""

    def __init__(
        self, configs: Sequence[Any], functions: Sequence[Any], parameters: Parameters
    ) -> None:
        self._parameters = parameters  # kept alive
        self._calls = list(zip(configs, functions, parameters.addresses, strict=True))

    def __len__(self) -> int:
        return len(self._calls)

    def enqueue(self, *, at_once: bool = False) -> None:
        """`at_once` if there are few: some hundred may fill the driver's queue, and then wait."""
        launch = quick.cuLaunchKernelEx if at_once else cuda.cuLaunchKernelEx
        for config, function, parameters in self._calls:
            check(launch(config, function, parameters, 0))


class CudaGraph:
    """One bucket's graph: the launches that read the host's buffers, then all others as one."""

    def __init__(
        self, launches: CudaLaunches, executable: Any, size: int, times: DriverTimes
    ) -> None:
        self._launches, self._executable = launches, executable
        self.bytes, self.driver_times = size, times

    def replay(self) -> None:
        self.hand_over(self.enqueue)

    def hand_over(self, rest: Callable[[Any], object]) -> None:
        """As CudaLaunches.hand_over."""
        self._launches.hand_over(rest)

    def enqueue(self, stream: Any) -> None:
        """The graph alone, without the launches in front of it."""
        check(quick.cuGraphLaunch(self._executable, stream))

    def __del__(self) -> None:
        # Not checked: at the end of the process the driver may be gone.
        cuda.cuGraphExecDestroy(self._executable)


class CudaLaunches:
    """A step's launches, in a stream or in a graph."""

    def __init__(
        self,
        device: Device,
        turns: Turns,
        *,
        inputs: Sequence[_Launches],
        nodes: _Launches,
    ) -> None:
        """`inputs` read the host's buffers, of one set each, and are never part of a graph."""
        self._device, self._turns = device, turns
        self._inputs, self._nodes = inputs, nodes

    def run(self) -> None:
        self.hand_over(self.enqueue)

    def enqueue(self, _stream: Any) -> None:
        """The launches behind the inputs' alone, into the stream that they were made for."""
        self._device.launches += len(self._nodes)
        self._nodes.enqueue()

    def hand_over(self, rest: Callable[[Any], object]) -> None:
        """Enqueue the step that lies in the current set of host buffers, whose kernels but the
        first `rest` puts into the stream that it is given. Waits for nothing."""
        self._device.use()
        self._turns.begin()
        inputs = self._inputs[self._turns.current]
        self._device.launches += len(inputs)
        inputs.enqueue(at_once=True)
        rest(self._device.stream)
        self._turns.done()

    def capture(self) -> Any:
        """The launches behind the inputs' as a CUgraph, which the caller owns. Nothing runs."""
        stream = self._device.stream
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        with _no_garbage_collected():
            check(cuda.cuStreamBeginCapture(stream, mode))
            try:
                self._nodes.enqueue()
            except CudaError:
                cuda.cuStreamEndCapture(stream)  # fails too, but leaves the stream usable
                raise
            return check(cuda.cuStreamEndCapture(stream))


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Some calls of the driver by a thread that captures fail, and the capture with them. And a
    CudaGraph that is part of a cycle calls the driver whenever it is collected."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
