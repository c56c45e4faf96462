"""Which headers pass."""

from __future__ import annotations

import pytest

from warmgraph_activator import headers


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"Connection": "close"}, set()),
        ({"connection": "X-a , x-B", "X-A": "1", "X-B": "2", "X-C": "3"}, {"X-C"}),
        ({"TE": "trailers", "Trailer": "X", "Upgrade": "h2c", "Transfer-Encoding": "y"}, set()),
        ({"Content-Length": "3", "Content-Type": "a/b"}, {"Content-Length", "Content-Type"}),
    ],
)
def test_headers_of_the_hop_stay_behind(given: dict[str, str], kept: set[str]) -> None:
    assert set(headers.to_caller(given)) == kept


def test_forwarding_headers_keep_what_came_before() -> None:
    sent = headers.to_pod(
        {
            "Host": "llm",
            "X-Forwarded-For": "1.2.3.4",
            "X-Forwarded-Proto": "https",
            "Expect": "100-continue",
        },
        peer="10.1.1.1",
    )
    assert dict(sent) == {
        "Host": "llm",
        "X-Forwarded-For": "1.2.3.4, 10.1.1.1",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "llm",
    }
