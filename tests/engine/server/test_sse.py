"""Events of a stream."""

from __future__ import annotations

import json

import pytest

from warmgraph_engine.server.sse import ChunkEvents, event


@pytest.mark.parametrize("name", ["m", 'a"choices":[b', '\\"choices":[', "ü\n"])
@pytest.mark.parametrize("rest", [{}, {"usage": None}], ids=["plain", "with usage"])
def test_a_chunk_is_the_event_that_it_would_be_by_itself(name: str, rest: dict) -> None:
    head = {"id": "cmpl-1", "created": 5, "model": name, "object": "chunk"}
    entry = {"index": 0, "text": 'he said "choices":[', "logprobs": None, "finish_reason": None}
    chunks = ChunkEvents(head | {"choices": []} | rest)
    for _ in range(2):
        assert chunks.event(entry) == event(head | {"choices": [entry]} | rest)
    lines = chunks.event(entry).decode().split("\n")
    assert lines[1:] == ["", ""]
    assert json.loads(lines[0].removeprefix("data: "))["choices"] == [entry]
