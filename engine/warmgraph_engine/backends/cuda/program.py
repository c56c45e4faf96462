"""A step: which launches make it, in which order, for a model and a shape."""

from __future__ import annotations

from collections.abc import Iterator

from warmgraph_api.report import StepKind
from warmgraph_engine.backends.cuda import tiling
from warmgraph_engine.backends.cuda.launch import Launch
from warmgraph_engine.backends.cuda.launches import Launches
from warmgraph_engine.backends.cuda.layout import Geometry
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.models.config import ModelConfig
from warmgraph_engine.shapes import StepShape


def step_program(config: ModelConfig, geometry: Geometry, shape: StepShape) -> list[Launch]:
    """Every launch of a step of this shape, in order; each waits for the one before it."""
    return list(_step(config, shape, Launches(config, geometry, shape)))


def _step(config: ModelConfig, shape: StepShape, launches: Launches) -> Iterator[Launch]:
    hidden, attended = config.hidden, config.heads * config.head_dim
    qkv = (config.heads + 2 * config.kv_heads) * config.head_dim
    yield launches.copy_inputs()
    yield launches.embed()
    for layer in range(config.layers):
        name = f"layers.{layer}"
        if layer:
            yield launches.add_norm(f"{name}.attention_norm", f"layers.{layer - 1}.down")
        yield launches.project(f"{name}.qkv", "work.x", qkv, hidden)
        yield launches.split_heads(name, layer)
        yield launches.attention(layer)
        yield launches.project(f"{name}.output", "work.attended", hidden, attended)
        yield launches.add_norm(f"{name}.mlp_norm", f"{name}.output")
        yield launches.activation(name)
        yield launches.project(f"{name}.down", "work.activation", hidden, config.intermediate)
    if shape.logit_rows:  # none are wanted of a chunk inside a prompt
        yield launches.add_norm("norm", f"layers.{config.layers - 1}.down", gather=True)
        yield launches.head()
        yield launches.draw()


def usual_shapes(settings: BackendSettings) -> list[StepShape]:
    """Shapes that need, between them, every kernel a step may need: one of each class of row
    counts that tiling.py tells apart, as far as the settings allow it."""
    shapes = []
    each = settings.max_tokens_per_sequence
    for rows in (1, *(most + 1 for most in tiling.ROW_CLASSES)):
        sequences = min(rows, settings.max_batch_size)
        if rows <= settings.max_batch_size:
            shapes.append(_shape(StepKind.DECODE, rows, rows, rows))
        if rows <= settings.max_batch_tokens:
            shapes.append(_shape(StepKind.PREFILL, rows, sequences, sequences))
        if each > 1 and rows <= settings.max_batch_size * each:
            sequences = -(-rows // each)
            shapes.append(_shape(StepKind.VERIFY, sequences * each, sequences, sequences * each))
    return shapes


def _shape(kind: StepKind, tokens: int, sequences: int, logit_rows: int) -> StepShape:
    return StepShape(kind=kind, tokens=tokens, sequences=sequences, logit_rows=logit_rows)
