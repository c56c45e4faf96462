"""When a drain is over."""

from __future__ import annotations

from typing import Any

import pytest

from warmgraph_sidecar.drain import Progress, outcome


def progress(**changes: Any) -> Progress:
    """A drain that began at 0, may take 100 s and settles at 5 s; nothing is in flight at 10 s."""
    values: dict[str, Any] = {
        "now": 10.0,
        "started": 0.0,
        "deadline": 100.0,
        "settled_at": 5.0,
        "engine_can_finish": True,
        "report_at": 9.0,
        "in_flight": 0,
    }
    return Progress(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "drained"),
    [
        ({}, True),
        ({"in_flight": 1}, None),
        ({"now": 4.0, "report_at": 3.0}, None),
        # a request may have come after the last report
        ({"report_at": 4.9}, None),
        ({"report_at": 5.0}, True),
        # a pod that was never ready has neither proxies nor requests to wait for
        ({"now": 0.0, "settled_at": None, "report_at": -40.0}, True),
        ({"now": 0.0, "settled_at": None, "in_flight": 1}, None),
        # the timeout bounds everything
        ({"now": 100.0, "report_at": 99.5, "in_flight": 2}, False),
        ({"now": 100.0, "settled_at": 200.0}, False),
        # an engine that is gone finishes nothing, and nobody waits for it
        ({"engine_can_finish": False, "now": 1.0}, True),
        ({"engine_can_finish": False, "now": 1.0, "in_flight": 2}, False),
    ],
)
def test_a_drain_ends_when_nothing_is_in_flight_or_nothing_can_end(
    changes: dict[str, Any], drained: bool | None
) -> None:
    ended = outcome(progress(**changes))
    assert (ended.drained if ended else None) == drained
