"""A rank beside rank 0: a backend that does what it is told.

    python -m warmgraph_engine.parallel.worker RANK RANKS MESSAGES DESCRIPTORS PROGRESS

The last three are file descriptors of rank 0 (processes.py). It ends when its socket closes.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread

import msgspec

from warmgraph_engine.backends.base import (
    Backend,
    CaptureError,
    Graph,
    GraphImage,
    ImageError,
    first_line,
)
from warmgraph_engine.backends.open import backend_settings, open_backend
from warmgraph_engine.backends.preparation import Preparation
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.parallel import messages
from warmgraph_engine.parallel.messages import (
    EAGER,
    Answer,
    Drawn,
    FinishLoading,
    ForgetStored,
    Hello,
    Load,
    LookUp,
    PoisonKv,
    PoisonLogits,
    Prepare,
    Publish,
    Record,
    Request,
    Run,
)
from warmgraph_engine.parallel.processes import END_SECONDS
from warmgraph_engine.parallel.progress import Progress
from warmgraph_engine.parallel.ranks import START_SECONDS
from warmgraph_engine.shapes import BucketId
from warmgraph_engine.store.key import cache_key
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.store import Store, local_user

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPeers:
    """The other ranks, as this one's backend finds them."""

    folder: Path
    timeout_seconds: float
    descriptors: socket.socket
    ranks: int

    def exchange(self, descriptor: int) -> list[int]:
        self.descriptors.settimeout(self.timeout_seconds)
        socket.send_fds(self.descriptors, [b"d"], [descriptor])
        try:
            _, found, _, _ = socket.recv_fds(self.descriptors, 1, self.ranks)
        except TimeoutError:
            found = []
        if len(found) != self.ranks:
            raise RuntimeError("rank 0 has not offered the others' memory")
        return found


class Worker:
    """One rank's backend, graphs, images and store. Its weights are on their way until rank 0 asks
    for them."""

    def __init__(self, hello: Hello, rank: int, peers: WorkerPeers, progress: Progress) -> None:
        """Raises ModelError."""
        config = hello.config
        checkpoint = Checkpoint(config.model)
        settings = backend_settings(config, checkpoint, rank=rank)
        self._rank, self._progress = rank, progress
        self._backend: Backend
        self._backend, facts = open_backend(
            config.device, checkpoint, settings, progress=lambda: None, peers=peers
        )
        key = cache_key(config, checkpoint, settings, facts)
        # Without a name of its own, what rank 0 is called: an engine's entries are kept together.
        first = msgspec.structs.replace(key, tensor_parallel_rank=0)
        self._store = Store(
            config.cache_directory,
            key,
            mode=config.cache_mode,
            retention=config.cache_retention,
            user=config.cache_user or local_user(first),
        )
        self._images: dict[BucketId, GraphImage] = {}
        self._graphs: dict[int, Graph] = {}

    def run(self, command: Run) -> None:
        place = (command.step.kind, command.bucket, command.graph)
        self._progress.begin(self._rank, command.iteration, *place)
        _log.debug("step %d: %s, bucket %d, graph %d", command.iteration, *place)
        for number in command.forget:
            self._graphs.pop(number, None)
        self._backend.buffers.fill(command.step, command.shape)
        if command.graph == EAGER:
            self._backend.run_eagerly(command.shape)
        else:
            self._graphs[command.graph].replay()
        self._progress.finish(self._rank, command.iteration)

    def poison_logits(self, command: PoisonLogits) -> None:
        self._backend.poison_logits(command.rows)

    def forget_stored(self) -> None:
        self._backend.forget_stored()

    def poison_kv(self, command: PoisonKv) -> None:
        self._backend.poison_kv(command.blocks)

    def prepare(self) -> None:
        Preparation(self._backend.recorder).start(lambda: None)

    def record(self, command: Record, number: int) -> Answer:
        self._backend.buffers.fill(command.step, command.shape)
        try:
            image = self._backend.recorder.record(command.size, command.shape)
        except (CaptureError, MemoryError) as error:
            return Answer(number=number, problem=str(error) or type(error).__name__)
        self._images[(command.shape.kind, command.size)] = image
        return Answer(number=number)

    def load(self, command: Load, number: int) -> Answer:
        image = self._images.get((command.kind, command.size))
        try:
            if image is None:
                raise ImageError("is missing")
            self._graphs[command.graph] = self._backend.player.load(image)
        except (ImageError, MemoryError) as error:
            return Answer(number=number, problem=str(error) or type(error).__name__)
        return Answer(number=number)

    def finish_loading(self, number: int) -> Answer:
        try:
            self._backend.finish_loading()
        except ModelError as error:
            return Answer(number=number, problem=str(error))
        return Answer(number=number)

    def drawn(self, number: int) -> Answer:
        tokens = self._backend.drawn()
        return Answer(number=number, tokens=None if tokens is None else list(tokens))

    def look_up(self, number: int) -> Answer:
        found = self._store.look_up()
        self._images = {(image.kind, image.size): image for image in found.images}
        return Answer(number=number, buckets=list(self._images), problem=found.message)

    def publish(self, command: Publish, number: int) -> Answer:
        images = [self._images[bucket] for bucket in command.buckets if bucket in self._images]
        try:
            # What traffic wanted is kept in rank 0's entry.
            problem = self._store.publish(images, Plan(buckets=[]))
        except Exception as error:  # of any kind: an answer is waited for
            _log.exception("graphs cannot be stored")
            problem = first_line(error)
        return Answer(number=number, problem=problem)


class _Connection:
    """Answers, from several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lock = connection, Lock()

    def answer(self, answer: Answer) -> None:
        with self._lock, suppress(OSError):  # rank 0 is gone: the next read shows it
            self._connection.sendall(messages.encode(answer))


def follow(worker: Worker, request: Request, answer: Callable[[Answer], None]) -> Answer | None:
    """Do one thing; its answer, if one is wanted and there already. `answer` takes a later one."""
    command, number = request.command, request.number
    match command:
        case Run():
            worker.run(command)
        case ForgetStored():
            worker.forget_stored()
        case PoisonKv():
            worker.poison_kv(command)
        case PoisonLogits():
            worker.poison_logits(command)
        case Prepare():
            worker.prepare()
        case Record():
            return worker.record(command, number)
        case Load():
            return worker.load(command, number)
        case FinishLoading():
            return worker.finish_loading(number)
        case Drawn():
            return worker.drawn(number)
        case LookUp():
            return worker.look_up(number)
        case Publish():
            # Beside the steps: a disk may take its time.
            _storing.submit(lambda: answer(worker.publish(command, number)))
    return None


_storing = ThreadPoolExecutor(1, "publish")


def serve(
    rank: int, ranks: int, connection: socket.socket, descriptors: socket.socket, progress: Progress
) -> int:
    """Follow rank 0 until it closes the connection; the exit status."""
    requests = messages.received(connection, Request)
    answers = _Connection(connection)
    first = next(requests, None)
    if first is None or not isinstance(first.command, Hello):
        return 1
    hello = first.command
    logging.basicConfig(
        level=hello.log_level,
        format=f"%(asctime)s %(levelname)s rank {rank}: %(message)s",
        stream=sys.stderr,
    )
    peers = WorkerPeers(
        folder=hello.folder,
        timeout_seconds=START_SECONDS,
        descriptors=descriptors,
        ranks=ranks,
    )
    try:
        worker = Worker(hello, rank, peers, progress)
    except (ModelError, RuntimeError, MemoryError) as error:
        answers.answer(Answer(number=0, problem=str(error) or type(error).__name__))
        return 1
    answers.answer(Answer(number=first.number))
    for request in requests:
        try:
            answer = follow(worker, request, answers.answer)
        except (RuntimeError, ValueError, LookupError, MemoryError) as error:
            answers.answer(Answer(number=0, problem=first_line(error)))
            return 1
        if answer is not None:
            answers.answer(answer)
    return 0


def _end_with(connection: socket.socket) -> None:
    """Whatever this process is in the middle of, and waits for, when rank 0 is gone."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    time.sleep(END_SECONDS / 2)  # it ends by itself, unless it waits for something
    os._exit(1)


def main() -> int:
    rank, ranks, *numbers = map(int, sys.argv[1:])
    connection, descriptors = (socket.socket(fileno=number) for number in numbers[:2])
    Thread(target=_end_with, args=(connection,), name="parent", daemon=True).start()
    return serve(rank, ranks, connection, descriptors, Progress(numbers[2], ranks))


if __name__ == "__main__":
    sys.exit(main())
