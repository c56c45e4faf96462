"""The flags that the operator writes into the pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmgraph_api import ports
from warmgraph_api.resource import OnCaptureFailure, WarmupPolicy
from warmgraph_sidecar.settings import parse


def test_defaults_are_the_resources() -> None:
    settings = parse([])
    assert settings.port == ports.SIDECAR_PORT
    assert settings.report_socket == Path(ports.REPORT_SOCKET)
    assert settings.policy.warmup is WarmupPolicy.REQUIRE_EAGER
    assert settings.policy.on_capture_failure is OnCaptureFailure.FALLBACK
    assert settings.policy.known_answer_check


def test_zero_means_zero() -> None:
    settings = parse(["--drain-settle-seconds", "0", "--drain-timeout-seconds", "0"])
    assert (settings.drain_settle_seconds, settings.drain_timeout_seconds) == (0.0, 0.0)


@pytest.mark.parametrize(
    "flags",
    [
        ["--policy", "Sometimes"],
        ["--on-capture-failure", "Ignore"],
        ["--stall-timeout-seconds", "0"],
        ["--drain-timeout-seconds", "-1"],
        ["--known-answer-check", "maybe"],
    ],
)
def test_bad_flags_are_refused_by_name(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(flags)
    assert flags[0] in capsys.readouterr().err
