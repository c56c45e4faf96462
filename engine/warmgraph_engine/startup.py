"""From settings to an executor that may serve: everything that a start does off the event loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warmgraph_api.report import Stage
from warmgraph_api.resource import Device
from warmgraph_engine.backends.base import Backend
from warmgraph_engine.backends.open import backend_settings, open_backend
from warmgraph_engine.backends.preparation import Preparation
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.config import EngineConfig
from warmgraph_engine.counts import StepCounts
from warmgraph_engine.executor import GraphExecutor
from warmgraph_engine.graphs import GraphTable
from warmgraph_engine.parallel.backend import ParallelBackend
from warmgraph_engine.parallel.ranks import Ranks
from warmgraph_engine.parallel.stores import RankStores
from warmgraph_engine.report import Reporter
from warmgraph_engine.sampling.sampler import Sampler
from warmgraph_engine.store.key import cache_key
from warmgraph_engine.store.store import GraphCache, Lookup, Store
from warmgraph_engine.tokenizer.text import TextModel
from warmgraph_engine.warmup.check import KnownAnswers
from warmgraph_engine.warmup.publishing import Publishing
from warmgraph_engine.warmup.runner import Warmup
from warmgraph_engine.warmup.tasks import between_steps

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What serving needs, and what is to be done at its end."""

    executor: GraphExecutor
    sampler: Sampler
    text: TextModel
    metrics: Callable[[], list[Collector]]
    publishing: Publishing
    preparation: Preparation
    store: GraphCache
    ranks: Ranks | None = None

    def watch(self, on_fault: Callable[[str], None]) -> None:
        """Have it called, on some thread, if another rank is lost."""
        if self.ranks is not None:
            self.ranks.on_lost = on_fault
            if self.ranks.lost:
                on_fault(self.ranks.lost)

    def close(self) -> None:
        """Keep what traffic used, for the order of the next start. The engine's thread is over."""
        try:
            self.publishing.publish()
            self.store.close()
        finally:
            if self.ranks is not None:
                self.ranks.close()


def start(
    config: EngineConfig, reporter: Reporter, *, loading: Callable[[], None] = lambda: None
) -> Started:
    """Load the model and warm it up, telling the reporter of every move. Calls `loading` when the
    interpreter has time for other threads.

    Raises ModelError, ModelFilesError, WarmupFailedError or RankError.
    """
    if config.tensor_parallel_size == 1:
        return _start(config, reporter, loading, None)
    ranks = Ranks(config)
    try:
        return _start(config, reporter, loading, ranks)
    except BaseException:
        ranks.close()
        raise


def _start(
    config: EngineConfig, reporter: Reporter, loading: Callable[[], None], ranks: Ranks | None
) -> Started:
    beside = ThreadPoolExecutor(2, "beside")
    try:
        return _load(config, reporter, loading, ranks, beside)
    finally:
        # After an error nobody waits for what is still read.
        beside.shutdown(wait=False, cancel_futures=True)


def _load(
    config: EngineConfig,
    reporter: Reporter,
    loading: Callable[[], None],
    ranks: Ranks | None,
    beside: ThreadPoolExecutor,
) -> Started:
    reporter.set_stage(Stage.LOADING_MODEL, str(config.model))
    with reporter.span("Load model"):
        checkpoint = Checkpoint(config.model)
        text_loading = beside.submit(_load_text, config.model, checkpoint.config.vocabulary)
        digest = beside.submit(checkpoint.read_digest, reporter.move)
        settings = backend_settings(config, checkpoint)
        if config.device is Device.CPU:
            loading()  # torch is read from disk, for seconds
        backend, facts = _open(config, checkpoint, settings, reporter, ranks)
    _log.info("%s", backend.layout.describe())
    counts = StepCounts()
    graphs = GraphTable(
        backend,
        config.buckets,
        speculative_tokens=config.speculative_tokens,
        on_change=reporter.set_bucket,
    )
    digest.result()
    key = cache_key(config, checkpoint, settings, facts)
    store: GraphCache = Store(
        config.cache_directory,
        key,
        mode=config.cache_mode,
        retention=config.cache_retention,
        user=config.cache_user,
    )
    if ranks is not None:
        store = RankStores(store, ranks)
    publishing = Publishing(store, backend, graphs, counts, reporter)

    def look_up() -> Lookup:
        found = store.look_up()
        publishing.set_earlier(found)
        return found

    def restored() -> None:
        loading()  # what is left waits for the weights, or for the GPU
        if text_loading.done():
            text_loading.result()  # a model without a tokenizer is told before graphs are captured

    answers = KnownAnswers(backend, graphs, counts)
    left = Warmup(config, graphs, reporter, answers).run(
        look_up, backend.finish_loading, key_digest=key.digest(), restored=restored
    )
    text = text_loading.result()
    preparation = Preparation(backend.recorder)
    idle = between_steps(
        config,
        graphs=graphs,
        counts=counts,
        answers=answers,
        publishing=publishing,
        left=left,
        prepared=lambda: preparation.over,
    )
    executor = GraphExecutor(backend, graphs, counts, execution=config.execution, idle=idle)

    def metrics() -> list[Collector]:
        # Imported where there is time: it takes as long as a tenth of the weights.
        from warmgraph_engine.graph_metrics import GraphMetrics  # noqa: PLC0415
        from warmgraph_engine.parallel.metrics import RankMetrics  # noqa: PLC0415
        from warmgraph_engine.warmup.cache_metrics import CacheMetrics  # noqa: PLC0415

        of_graphs = GraphMetrics(counts, graphs, lambda: backend.launches)
        of_ranks = [] if ranks is None else [RankMetrics(ranks)]
        return [of_graphs, CacheMetrics(key, publishing, reporter), *of_ranks]

    return Started(
        executor=executor,
        sampler=backend.sampler,
        text=text,
        metrics=metrics,
        publishing=publishing,
        preparation=preparation,
        store=store,
        ranks=ranks,
    )


def _open(
    config: EngineConfig,
    checkpoint: Checkpoint,
    settings: BackendSettings,
    reporter: Reporter,
    ranks: Ranks | None,
) -> tuple[Backend, Mapping[str, str]]:
    """The backend, of all ranks if there are several."""
    try:
        backend, facts = open_backend(
            config.device, checkpoint, settings, progress=reporter.move, peers=ranks
        )
    except RuntimeError as error:
        raise error if ranks is None else ranks.blame(error) from error
    if ranks is None:
        return backend, facts
    ranks.wait_until_ready()
    return ParallelBackend(backend, ranks), facts


def _load_text(folder: Path, vocabulary: int) -> TextModel:
    text = TextModel.load(folder, vocabulary=vocabulary)
    text.prepare()
    return text
