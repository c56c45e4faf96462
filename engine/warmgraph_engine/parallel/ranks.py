"""Rank 0's view of the others: tells them what to do, and notices when one does not do it.

Two things end an engine of several ranks: a rank whose socket closes, and one that is silent for
the timeout, be it with an answer or with a step. Either way the rank is named, with what it was to
do, all others are ended, so that nobody waits for them any more, and whoever asks for something
afterwards gets RankError.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from itertools import count
from pathlib import Path

from warmgraph_engine.config import EngineConfig
from warmgraph_engine.parallel import messages, processes
from warmgraph_engine.parallel.messages import Answer, Command, Hello, Request, Run
from warmgraph_engine.parallel.progress import Progress
from warmgraph_engine.shapes import StepShape
from warmgraph_engine.step import Step

_log = logging.getLogger(__name__)

START_SECONDS = 300.0
"""For a rank to find the others; to open its part of the model, and to have its weights, once rank
0 has done so. Importing torch alone takes a minute on a busy machine, and a disk may be slow; a
rank that ends is noticed at once."""

POLL_SECONDS = 0.25
"""How often the watch looks at the ranks' progress. A rank is late by what the watch itself lives
through: a process that was stopped as a whole finds nobody late when it goes on."""

GRACE_SECONDS = 2.0
"""A rank may learn of another's end from a failed all-reduce, before rank 0 sees the socket."""

_REMEMBERED = 8
"""Steps whose description is kept: more than may be on their way at once."""


class RankError(RuntimeError):
    """A rank is lost, and with it the engine; the message says which, and what it was to do."""


class Question:
    """A command that all ranks answer."""

    def __init__(
        self,
        what: str,
        answers: dict[int, Future[Answer]],
        lose: Callable[[int, str], RankError],
        seconds: float,
    ) -> None:
        self.what, self._answers = what, answers
        self._lose, self._seconds = lose, seconds

    def answers(self) -> list[Answer]:
        """By rank, from rank 1. Ask for them when rank 0 has done the same: the others have the
        timeout from then on. Raises RankError."""
        for rank, answer in self._answers.items():
            try:
                answer.result(self._seconds)
            except LateError:
                how = f"has not answered within {self._seconds:g} s"
                raise self._lose(rank, how) from None
        return [answer.result() for answer in self._answers.values()]

    def problem_by(self, seconds: float) -> str:
        """As problem(), but a rank that is late is a problem and not lost. Raises RankError."""
        late = wait(self._answers.values(), seconds).not_done
        return f"a rank has not been done within {seconds:g} s" if late else self.problem()

    def problem(self) -> str:
        """Of the first rank that could not; empty if all could. Raises RankError."""
        found = [(rank, a.problem) for rank, a in enumerate(self.answers(), start=1) if a.problem]
        return f"rank {found[0][0]}: {found[0][1]}" if found else ""

    @property
    def answered(self) -> bool:
        return all(answer.done() for answer in self._answers.values())

    def waits_for(self, rank: int) -> bool:
        return not self._answers[rank].done()

    def answer(self, rank: int, answer: Answer) -> None:
        with suppress(InvalidStateError):  # it is lost, and this was on its way
            self._answers[rank].set_result(answer)

    def fail(self, error: RankError) -> None:
        for answer in self._answers.values():
            with suppress(InvalidStateError):  # it was answered at the last moment
                answer.set_exception(error)


class Ranks:
    """The other ranks of one engine. Starts them; end them with close()."""

    def __init__(self, config: EngineConfig) -> None:
        self.size = config.tensor_parallel_size
        self.timeout_seconds = START_SECONDS
        """As Peers.timeout_seconds."""
        self._step_seconds = config.rank_timeout_seconds
        self.on_lost: Callable[[str], None] = lambda _: None
        """Called once, on a thread of its own, when a rank is lost."""
        self.lost = ""
        """Which rank, and how; empty while all are there."""
        self.progress = Progress.create(self.size)
        self._shared = tempfile.TemporaryDirectory(prefix="warmgraph-ranks-")
        self._children = [
            processes.spawn(rank, self.size, self.progress.descriptor)
            for rank in range(1, self.size)
        ]
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._ended = threading.Event()
        self._numbers = count(1)
        self._questions: dict[int, Question] = {}
        self._iteration = 0
        self._steps: deque[tuple[int, str, int]] = deque(maxlen=_REMEMBERED)
        for child in self._children:
            self._thread(self._read, child)
        self._thread(self._watch)
        level = logging.getLogger().getEffectiveLevel()
        hello = Hello(config=config, folder=self.folder, log_level=level)
        self._hello = self.ask("open the model", hello, seconds=START_SECONDS)

    @property
    def folder(self) -> Path:
        return Path(self._shared.name)

    def exchange(self, descriptor: int) -> list[int]:
        """As Peers.exchange."""
        try:
            return processes.collect(descriptor, self._children, self.timeout_seconds)
        except (RuntimeError, OSError) as error:
            raise self.blame(RuntimeError(str(error))) from error

    def wait_until_ready(self) -> None:
        """Until all can record and load graphs, whose weights may still come. Raises RankError."""
        self._hello.answers()
        self._shared.cleanup()  # they have found each other; whoever is killed leaves nothing

    def ask(self, what: str, command: Command, *, seconds: float | None = None) -> Question:
        """Have all ranks do something, and answer in time. `what` follows "was to". Raises
        RankError."""
        answers: dict[int, Future[Answer]] = {child.rank: Future() for child in self._children}
        question = Question(what, answers, self.lose, seconds or self._step_seconds)
        with self._lock:
            number = next(self._numbers)
            self._questions[number] = question
        self._send(Request(command=command, number=number))
        return question

    def tell(self, command: Command) -> None:
        """Have all ranks do something. Raises RankError."""
        self._send(Request(command=command))

    def run(
        self, step: Step, shape: StepShape, *, bucket: int, graph: int, forget: list[int]
    ) -> int:
        """Announce a step; its iteration. Raises RankError."""
        iteration = self._iteration + 1
        self._steps.append((iteration, step.kind, bucket))
        self.progress.begin(0, iteration, step.kind, bucket, graph)
        self._iteration = iteration
        _log.debug("step %d: %s, bucket %d, graph %d", iteration, step.kind, bucket, graph)
        run = Run(
            iteration=iteration, step=step, shape=shape, bucket=bucket, graph=graph, forget=forget
        )
        self.tell(run)
        return iteration

    def blame(self, error: RuntimeError) -> RuntimeError:
        """What rank 0 should raise where its own part of something common failed: the loss of a
        rank if there is one."""
        lost = self.lost or (self._ended.wait(GRACE_SECONDS) and self.lost)
        return RankError(self.lost) if lost else error

    def lose(self, rank: int, how: str) -> RankError:
        """A rank does not follow any more. Only the first one counts."""
        with self._lock:
            if self._ended.is_set():
                return RankError(self.lost)
            doing = self._doing(rank)
            self.lost = f"rank {rank} {how}" + (f"; it was to {doing}" if doing else "")
            self._ended.set()
            questions = list(self._questions.values())
        _log.error("%s", self.lost)
        for child in self._children:
            child.kill()
        for question in questions:
            question.fail(RankError(self.lost))
        self.on_lost(self.lost)
        return RankError(self.lost)

    def close(self) -> None:
        """End the other ranks."""
        self._ended.set()
        processes.end(self._children)
        self._shared.cleanup()

    def _send(self, request: Request) -> None:
        data = messages.encode(request)
        for child in self._children:
            if self.lost:
                raise RankError(self.lost)
            try:
                with self._sending:
                    child.messages.sendall(data)
            except OSError as error:
                # Its socket tells why, if it has ended; else it has not read for a long time.
                self._ended.wait(GRACE_SECONDS)
                raise self.lose(child.rank, "takes no commands") from error

    def _doing(self, rank: int) -> str:
        """What a rank was asked for last and has not done, following "was to"."""
        for question in self._questions.values():
            if question.waits_for(rank):
                return question.what
        done = self.progress.of(rank).done
        for iteration, kind, bucket in list(self._steps):
            if iteration == done + 1:
                how = f"with the graph of {bucket}" if bucket else "eagerly"
                return f"run step {iteration} ({kind}, {how})"
        return ""

    def _read(self, child: processes.Child) -> None:
        for answer in messages.received(child.messages, Answer):
            with self._lock:
                question = self._questions.get(answer.number)
            if question is None:
                # Perhaps because another is gone, which that one's socket tells.
                if not self._ended.wait(GRACE_SECONDS):
                    self.lose(child.rank, f"cannot follow: {answer.problem}")
                return
            question.answer(child.rank, answer)
            if question.answered:
                with self._lock:
                    self._questions.pop(answer.number, None)
        if not self._ended.is_set():
            self.lose(child.rank, child.ended())

    def _watch(self) -> None:
        """Lose a rank that makes no progress with a step for the timeout: of those that don't the
        one that is behind, since the others wait for it."""
        late = dict.fromkeys(range(1, self.size), 0.0)
        seen = dict.fromkeys(late, 0)
        while not self._ended.wait(POLL_SECONDS):
            announced = self._iteration
            places = {rank: self.progress.of(rank) for rank in late}
            for rank, place in places.items():
                waits = seen[rank] == place.done < announced
                late[rank] = late[rank] + POLL_SECONDS if waits else 0.0
                seen[rank] = place.done
            silent = [rank for rank in late if late[rank] >= self._step_seconds]
            if silent:
                first, *others = sorted(silent, key=lambda rank: places[rank].begun)
                like = [str(rank) for rank in others if places[rank].begun == places[first].begun]
                as_others = f", nor has rank {', '.join(like)}" if like else ""
                self.lose(first, f"has made no progress for {self._step_seconds:g} s{as_others}")

    def _thread(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, name="ranks", daemon=True).start()
