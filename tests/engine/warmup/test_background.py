"""Work between steps keeps to its share of time, on a clock of our own."""

from __future__ import annotations

from warmgraph_api.report import StepKind
from warmgraph_engine.warmup.background import BetweenSteps, BucketId, Task

D = StepKind.DECODE


class World:
    """Each capture takes two seconds; `only_idle` buckets come after them."""

    def __init__(
        self, *sizes: int, only_idle: tuple[int, ...] = (), busy_percent: int = 10
    ) -> None:
        self.now = 100.0
        self.captured: list[int] = []
        self.wanted: dict[BucketId, int] = {}
        self.finished = 0
        self.captures = Task(
            waiting=[(D, size) for size in sizes],
            work=self.capture,
            choose=lambda waiting: max(waiting, key=lambda b: self.wanted.get(b, 0)),
            finished=self.finish,
        )
        others = Task(waiting=[(D, size) for size in only_idle], work=self.capture, only_idle=True)
        self.work = BetweenSteps(
            [self.captures, others], busy_percent=busy_percent, clock=lambda: self.now
        )

    def capture(self, bucket: BucketId) -> None:
        self.captured.append(bucket[1])
        self.now += 2.0

    def finish(self) -> None:
        self.finished += 1


def test_an_idle_engine_captures_everything_one_by_one() -> None:
    world = World(8, 4, 2)
    assert [world.work.run_once(busy=False) for _ in range(4)] == [True, True, True, False]
    assert world.captured == [8, 4, 2]
    assert world.finished == 1


def test_a_busy_engine_spends_its_percentage() -> None:
    world = World(*range(1, 12), busy_percent=10)
    began = world.now
    while len(world.captured) < 11:
        world.work.run_once(busy=True)
        world.now += 0.5
    share = 11 * 2.0 / (world.now - began)
    assert 0.09 < share <= 0.115


def test_idle_time_needs_no_budget() -> None:
    world = World(8, 4)
    assert world.work.run_once(busy=True)
    assert not world.work.run_once(busy=True)
    assert world.work.run_once(busy=False)


def test_what_traffic_wants_most_comes_first() -> None:
    world = World(8, 4, 2)
    world.wanted = {(D, 2): 9, (D, 4): 3}
    for _ in range(3):
        world.work.run_once(busy=False)
    assert world.captured == [2, 4, 8]


def test_nothing_waiting_is_nothing_done() -> None:
    world = World()
    assert not world.work.run_once(busy=False)
    assert world.finished == 0


def test_what_is_not_ready_lets_others_go_first_and_is_not_forgotten() -> None:
    world = World(8, 4)
    world.captures.ready = lambda: False
    assert not world.work.due(busy=False)
    world.captures.ready = lambda: True
    assert world.work.run_once(busy=False)
    assert world.captured == [8]


def test_what_writes_to_kv_waits_until_no_request_has_any() -> None:
    world = World(8, only_idle=(4, 2))
    while world.work.run_once(busy=True):
        world.now += 1000.0
    assert world.captured == [8]
    while world.work.run_once(busy=False):
        pass
    assert world.captured == [8, 4, 2]
