"""A rollback finds its graphs: engines keep entries for the revisions that the operator keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.store.entries import image, key
from tests.operator.builders import CONFIG, infd
from warmgraph_api.report import CacheResult
from warmgraph_engine import config as engine
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.store import Store
from warmgraph_operator.desired.pod import pod_template


def start(cache: Path, revision: str, **spec: Any) -> CacheResult:
    """A pod of this revision, with the command line that its template has: how its lookup went."""
    resource = infd(model={"uri": "file:///models/tiny", "revision": revision}, **spec)
    template = pod_template(resource, revision=revision, config=CONFIG)
    (container,) = template["spec"]["containers"]
    config = engine.parse(container["args"])
    store = Store(
        cache,
        key(model_revision=config.model_revision),
        mode=config.cache_mode,
        retention=config.cache_retention,
        user=config.cache_user,
    )
    found = store.look_up()
    assert store.publish([image(1)], Plan()) == ""
    store.close()
    return found.result


@pytest.mark.parametrize(("history", "kept", "found"), [(3, 3, 3), (3, 0, 3), (1, 4, 4), (0, 0, 0)])
def test_every_revision_that_can_be_gone_back_to_finds_its_entry(
    tmp_path: Path, history: int, kept: int, found: int
) -> None:
    """retention.revisions may ask for more than rollout.historyLimit, never for less."""
    spec = {
        "rollout": {"historyLimit": history},
        "graphCache": {"retention": {"revisions": kept}},
    }
    newest = 6
    for number in range(1, newest + 1):
        assert start(tmp_path, f"r{number}", **spec) is CacheResult.MISS
    results = [start(tmp_path, f"r{n}", **spec) for n in range(newest, newest - found - 1, -1)]
    assert set(results) == {CacheResult.HIT}
    assert start(tmp_path, f"r{newest - found - 1}", **spec) is CacheResult.MISS


def test_an_entry_is_kept_for_one_deployment_of_one_namespace() -> None:
    template = pod_template(infd(), revision="r1", config=CONFIG)
    (container,) = template["spec"]["containers"]
    assert "--cache-user=space.tiny@r1" in container["args"]
