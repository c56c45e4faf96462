"""The engine thread: takes requests, schedules a step, runs it, draws tokens, hands them out.

The thread only ever holds plain token ids; text, HTTP and JSON are on the other side of
`deliver`. One turn is: schedule, execute, sample, read the tokens, commit. Where the step itself
has drawn all its tokens (on a GPU), the next one is handed over before they are read, and of large
batches the one after it too: the tokens read in a turn are then those of a turn before, and the
device always has work while this thread reads, decides and delivers. Speculative decoding drafts
from the tokens read, so it does without where a text repeats.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from warmgraph_api.report import Load, StepKind
from warmgraph_engine.inflight import InFlight
from warmgraph_engine.kv import blocks_for, positions_of
from warmgraph_engine.metrics import EngineMetrics
from warmgraph_engine.sampling.sampler import PendingTokens, SampledToken, Sampler, TokenLogprob
from warmgraph_engine.scheduler.plan import Plan, PlannedRow
from warmgraph_engine.scheduler.scheduler import Scheduler
from warmgraph_engine.scheduler.sequence import FinishReason, Sequence
from warmgraph_engine.step import Executor, Limits, StepResult, StepTiming

_log = logging.getLogger(__name__)

MAX_WAITING = 1024
"""Sequences that may wait. At a few hundred tokens/s on a CPU that is already minutes of work;
a client told to try again, or sent to another replica, is served sooner."""


FAR_ROWS = 16
"""Steps of more sequences than this are handed over when two are on their way, others when one is.
With many fast streams the server's thread has much to write, and this one may wait for the
interpreter longer than a step takes. The price is a step more for a sequence that has stopped."""


CLOSE_SECONDS = 10.0
"""Longest wait for the current step at exit. A step takes a second at most; a device that hangs
must not keep the process alive."""


class EngineFaultError(RuntimeError):
    """The engine failed and serves nothing until its process is restarted."""


class OverloadedError(RuntimeError):
    """Too many sequences wait already."""


class Output(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a step brought for one sequence. The last one has `finish` or `error`."""

    sequence: Sequence
    token: SampledToken | None = None
    prompt_logprobs: list[TokenLogprob] = []
    finish: FinishReason | None = None
    error: EngineFaultError | None = None


class _Issued(msgspec.Struct, frozen=True, gc=False):
    """A step on its way."""

    plan: Plan
    scores: list[list[TokenLogprob]]
    """Prompt log-probabilities of each row."""
    tokens: PendingTokens
    timing: StepTiming | None
    follows: bool
    """Since the step before it there was always a request to run."""


Deliver = Callable[[list[Output]], None]
"""Called on the engine thread once per step; must return at once."""

OnFault = Callable[[str], None]
"""Called once, on the engine thread, with a message for whoever looks after the pod."""


class EngineLoop:
    """Owns the scheduler and, from `start` on, the executor. Public methods are thread-safe."""

    def __init__(
        self,
        executor: Executor,
        sampler: Sampler,
        *,
        metrics: EngineMetrics,
        on_fault: OnFault,
        max_waiting: int = MAX_WAITING,
        speculative_tokens: int = 0,
        far_rows: int = FAR_ROWS,
    ) -> None:
        """`speculative_tokens` is the most drafts of a sequence in one step."""
        self._executor = executor
        self._sampler = sampler
        self._metrics = metrics
        self._on_fault = on_fault
        self._max_waiting = max_waiting
        self._far_rows = far_rows
        self._unread: deque[_Issued] = deque()
        """Steps on their way, and over, whose tokens nobody has read."""
        self._had_work = False
        self._scheduler = Scheduler(executor.limits, speculative_tokens=speculative_tokens)
        self._deliver: Deliver = _nowhere
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)
        self._changed = threading.Condition()
        self._arrived: list[Sequence] = []
        self._cancelled: list[Sequence] = []
        self._woken = False
        self._closing = False
        self._fault: str | None = None
        self._step_since: float | None = None
        self._preemptions_counted = 0
        self.in_flight = InFlight()
        pool = self._scheduler.pool
        metrics.watch(
            running_sequences=lambda: len(self._scheduler.running),
            waiting_sequences=self._waiting,
            requests_in_flight=lambda: self.load().in_flight,
            kv_blocks=lambda: pool.total,
            kv_blocks_used=lambda: pool.used,
        )

    @property
    def limits(self) -> Limits:
        return self._executor.limits

    @property
    def fault(self) -> str | None:
        """Why the engine serves nothing any more."""
        return self._fault

    def start(self, deliver: Deliver) -> None:
        """Begin to serve."""
        self._deliver = deliver
        self.in_flight.restart_idle()
        self._thread.start()

    def load(self) -> Load:
        return self.in_flight.load()

    def step_seconds(self) -> float:
        """How long the current step has been running; 0 between steps. A step that never ends
        is a device that hangs."""
        since = self._step_since
        return 0.0 if since is None else time.monotonic() - since

    def submit(self, sequences: list[Sequence]) -> None:
        """Queue the choices of a request. Raises EngineFaultError or OverloadedError, and then
        has queued none. A sequence that could never get its blocks is a caller's mistake
        (ValueError): it would wait for ever, and with it all that come later."""
        pool = self._scheduler.pool
        for sequence in sequences:
            needed = positions_of(sequence.prompt_length, sequence.params.max_tokens)
            if blocks_for(needed, self.limits.block_size) > pool.total:
                raise ValueError(f"{needed} positions don't fit in {pool.total} KV blocks")
        with self._changed:
            if self._fault is not None:
                raise EngineFaultError(self._fault)
            if self._closing:
                raise EngineFaultError("the engine is shutting down")
            if self._waiting() >= self._max_waiting:
                raise OverloadedError(f"{self._max_waiting} sequences wait already")
            self._arrived += sequences
            self._changed.notify()

    def cancel(self, sequences: Iterable[Sequence]) -> None:
        """End sequences without a further output. Their blocks are free before the next step."""
        with self._changed:
            self._cancelled += sequences
            self._changed.notify()

    def wake(self) -> None:
        """Ask for background work again, although there is no request."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def close(self) -> None:
        """Stop after the current step; what is left ends with an error. Blocks until then, or
        for CLOSE_SECONDS."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _waiting(self) -> int:
        return len(self._scheduler.waiting) + len(self._arrived)

    def _main(self) -> None:
        try:
            while not self._closing:
                self._turn()
            self._read_all_but(0)  # what was computed is not thrown away
            self._end_all("the engine is shutting down")
        except Exception as error:  # of any kind: it must be reported, not end the thread mutely
            _log.exception("the engine failed")
            message = f"{type(error).__name__}: {error}"
            try:
                self._on_fault(message)
            finally:
                self._end_all(message)

    def _turn(self) -> None:
        self._take_messages()
        plan = self._scheduler.schedule()
        if plan is not None:
            self._unread.append(self._issue(plan))
        stepped = bool(self._unread)
        self._read_all_but(self._may_stay_unread(plan))
        if self._unread and self._scheduler.can_draft:
            self._read_all_but(0)
        self._had_work = self._busy()
        if not self._work_between_steps(self._had_work) and not stepped:
            self._sleep()

    def _may_stay_unread(self, plan: Plan | None) -> int:
        """How many steps."""
        if plan is None:  # what the oldest one brings may be what there is to plan with
            return max(0, len(self._unread) - 1)
        if not self._unread[-1].tokens.on_device:
            return 0
        return 2 if len(plan.rows) > self._far_rows else 1

    def _read_all_but(self, count: int) -> None:
        while len(self._unread) > count:
            self._finish(self._unread.popleft())

    def _work_between_steps(self, busy: bool) -> bool:
        """Whether there was any. Tokens that are there already are not kept waiting for it."""
        if not self._executor.idle_work_due(busy=busy):
            return False
        if self._unread:
            self._read_all_but(0)
            busy = self._busy()
        self._step_since = time.monotonic()  # a device may hang in it as in a step
        worked = self._executor.idle_work(busy=busy)
        self._step_since = None
        return worked

    def _busy(self) -> bool:
        return bool(self._scheduler.running) or self._waiting() > 0

    def _take_messages(self) -> None:
        with self._changed:
            arrived, self._arrived = self._arrived, []
            cancelled, self._cancelled = self._cancelled, []
            for sequence in arrived:  # inside the lock, so that no sequence goes uncounted
                self._scheduler.add(sequence)
        self._remove(cancelled)

    def _sleep(self) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._arrived or self._cancelled or self._woken or self._closing
            )
            self._woken = False

    def _issue(self, plan: Plan) -> _Issued:
        """Hand a step and its draws to the device."""
        self._step_since = self._step_since or time.monotonic()
        draws = plan.draws()
        in_step = [self._sampler.in_step(of[0]) if len(of) == 1 else None for of in draws]
        result = self._executor.execute(plan.step(in_step))
        tokens = self._sampler.sample(result.logits, [draw for of in draws for draw in of])
        scores = self._prompt_logprobs(plan, result)
        return _Issued(plan, scores, tokens, result.timing, self._had_work)

    def _finish(self, issued: _Issued) -> None:
        """Read a step's tokens and tell each sequence what it got."""
        tokens = iter(issued.tokens.read())
        self._step_since = time.monotonic() if self._unread else None
        if issued.timing is not None:
            self._metrics.note_times(issued.timing.times(), follows=issued.follows)
        outputs: list[Output] = []
        for row, scored in zip(issued.plan.rows, issued.scores, strict=True):
            sequence = row.sequence
            drawn = [next(tokens) for _ in range(row.drawn)]
            if sequence.ended:  # cancelled, or stopped by the token before this one
                continue
            kept = row.commit(drawn)
            if row.drafts:
                self._scheduler.reject(sequence, len(drawn) - len(kept))
                self._metrics.note_drafts(row.drafts, [token.token_id for token, _ in kept])
            outputs += [
                Output(sequence=sequence, token=token, prompt_logprobs=scored, finish=finish)
                for token, finish in kept
            ]
            ends = row.end == sequence.prefill_end and sequence.params.max_tokens == 0
            if not kept and (scored or ends):
                finish = FinishReason.LENGTH if ends else None
                outputs.append(Output(sequence=sequence, prompt_logprobs=scored, finish=finish))
        self._remove(output.sequence for output in outputs if output.finish)
        self._metrics.preemptions.inc(self._scheduler.preemptions - self._preemptions_counted)
        self._preemptions_counted = self._scheduler.preemptions
        if outputs:
            self._deliver(outputs)

    def _prompt_logprobs(self, plan: Plan, result: StepResult) -> list[list[TokenLogprob]]:
        if plan.kind is not StepKind.PREFILL:
            return [[] for _ in plan.rows]
        scores: list[list[TokenLogprob]] = []
        first_row = 0
        for row in plan.rows:
            scores.append(self._row_logprobs(row, first_row, result))
            first_row += row.logit_rows
        return scores

    def _row_logprobs(
        self, row: PlannedRow, first_row: int, result: StepResult
    ) -> list[TokenLogprob]:
        sequence = row.sequence
        top = sequence.params.prompt_logprobs
        if top is None:
            return []
        targets = sequence.tokens[row.scored_from + 1 : min(row.end + 1, sequence.prompt_length)]
        if not targets:
            return []
        return self._sampler.prompt_logprobs(
            result.logits, first_row=first_row, targets=targets, top=top
        )

    def _remove(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            self._scheduler.remove([sequence])
            self._sampler.forget(sequence.id)

    def _end_all(self, message: str) -> None:
        """End every sequence with an error, and refuse new ones."""
        with self._changed:
            self._fault = message
            left = [*self._scheduler.running, *self._scheduler.waiting, *self._arrived]
            self._arrived = []
        error = EngineFaultError(message)
        self._deliver([Output(sequence=sequence, error=error) for sequence in left])
        self._scheduler.remove(left)  # last: it is what may be broken


def _nowhere(outputs: list[Output]) -> None:
    raise AssertionError(f"{len(outputs)} outputs before start()")
