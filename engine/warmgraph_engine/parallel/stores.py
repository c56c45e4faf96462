"""The graph cache of several ranks: an entry each, used all or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warmgraph_api.report import CacheResult
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.parallel.messages import LookUp, Publish
from warmgraph_engine.parallel.ranks import RankError, Ranks
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.store import GraphCache, Lookup

PUBLISH_SECONDS = 60.0
"""For the others to write their entries: a disk may take its time, and no request waits for it."""


class RankStores:
    """Rank 0's store, with the others' behind it."""

    def __init__(self, own: GraphCache, ranks: Ranks) -> None:
        self._own, self._ranks = own, ranks

    @property
    def writable(self) -> bool:
        return self._own.writable

    def look_up(self) -> Lookup:
        """A hit if every rank has one, and then the buckets that all of them have. Raises
        RankError."""
        question = self._ranks.ask("look up its stored graphs", LookUp())
        found, answers = self._own.look_up(), question.answers()
        if found.result is not CacheResult.HIT:
            return found
        for rank, answer in enumerate(answers, start=1):
            if not answer.buckets:
                message = f"rank {rank} has no stored graphs: {answer.problem or 'none yet'}"
                return replace(found, result=CacheResult.MISS, images=(), message=message)
        common = set.intersection(*(set(answer.buckets) for answer in answers))
        images = [image for image in found.images if (image.kind, image.size) in common]
        return replace(found, images=images)

    def publish(self, images: Sequence[GraphImage], news: Plan) -> str:
        buckets = [(image.kind, image.size) for image in images]
        try:
            # Before rank 0's own: without that entry nobody restores anything.
            asked = self._ranks.ask("store its graphs", Publish(buckets=buckets))
            problem = asked.problem_by(PUBLISH_SECONDS)
        except RankError as error:
            problem = str(error)
        return problem or self._own.publish(images, news)

    def close(self) -> None:
        self._own.close()
