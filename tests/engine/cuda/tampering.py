"""Stored CUDA graphs that somebody changed, and what a start over them says: on the interpreted GPU
in tampering_cases.py, on a real one in tests/gpu/test_store.py.

No case reads or writes outside the arena: a real GPU's context would not survive it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.store.engines import Engine
from tests.engine.store.tampering import document, edit_manifest, files, replace_document
from warmgraph_api.report import BucketState, CacheResult, StepKind
from warmgraph_api.resource import CacheMode
from warmgraph_engine.kv import BlockTable
from warmgraph_engine.step import PENDING_TOKEN, Step, StepDraw, StepRow
from warmgraph_engine.store import layout
from warmgraph_engine.store.policy import Retention
from warmgraph_engine.store.reading import read_key
from warmgraph_engine.store.store import Lookup, Store

BUCKET = "decode-2"
"""Whose graph is edited: it draws most of the tokens that are compared."""

STORED_GRAPH = "stored graph of decode 2"
"""The beginning of what is said of it."""

Edit = Callable[[Any], None]
"""Of a document, as JSON gives it."""


@dataclass(frozen=True, kw_only=True)
class House:
    """A cache with one entry, and what its graphs answer."""

    begin: Callable[[Path], Engine]
    """Starts an engine over a cache."""
    cache: Path
    answers: list[Any]

    @classmethod
    def built(cls, begin: Callable[[Path], Engine], cache: Path) -> House:
        """With the entry that an engine has stored there."""
        engine = begin(cache)
        assert set(engine.states().values()) == {BucketState.CAPTURED}
        engine.publish()
        found = answers(engine)
        engine.close()
        return cls(begin=begin, cache=cache, answers=found)

    def copied(self, cache: Path) -> House:
        """To be broken."""
        shutil.copytree(self.cache, cache)
        return replace(self, cache=cache)

    @property
    def entry(self) -> Path:
        (found,) = (path for path in self.cache.iterdir() if layout.DIGEST.fullmatch(path.name))
        return found

    def start(self) -> Engine:
        return self.begin(self.cache)

    def refuses(self, message: str) -> Engine:
        """The engine that says so, has its graphs nevertheless, and answers as before anybody
        touched the entry."""
        engine = self.start()
        cache = engine.report.cache
        assert cache.result is CacheResult.REFUSED, cache
        assert re.search(message, cache.message), cache.message
        assert set(engine.states().values()) <= {BucketState.CAPTURED, BucketState.RESTORED}
        assert answers(engine) == self.answers
        return engine


def answers(engine: Engine) -> list[Any]:
    """Tokens of two sequences and the bits of their last logits. Each step goes on from the tokens
    of the one before it, which nobody has read yet."""
    prompts = ([5, 6, 7], [9, 8, 7, 6, 5])
    blocks = (BlockTable([1, 2]), BlockTable([3, 4]))

    def step(kind: StepKind, ids: list[list[int]], starts: list[int]) -> Step:
        rows = [
            StepRow(
                token_ids=ids[slot],
                slot=slot,
                start_position=starts[slot],
                block_table=blocks[slot],
                logit_rows=1,
                draw=StepDraw(),
            )
            for slot in range(len(prompts))
        ]
        return Step(kind=kind, rows=rows)

    last = engine.executor.execute(step(StepKind.PREFILL, [*prompts], [0, 0])).logits
    found: list[Any] = []
    for number in range(2):
        starts = [len(prompt) + number for prompt in prompts]
        following = step(StepKind.DECODE, [[PENDING_TOKEN]] * 2, starts)
        ahead = engine.executor.execute(following).logits
        found.append(list(last.drawn())[:2])
        last = ahead
    return [*found, list(last.drawn())[:2], last.on_host([0, 1]).tobytes()]


# --- damage -----------------------------------------------------------------------------------


def check_damage_anywhere_is_found(entry: Path) -> None:
    """A byte flipped at either end of any file and between them, and any file cut short."""
    key = read_key(entry)

    def look_up() -> Lookup:
        store = Store(entry.parent, key, mode=CacheMode.READ_ONLY, retention=Retention())
        try:
            return store.look_up()
        finally:
            store.close()

    for path in files(entry):
        good = path.read_bytes()
        for bad in (*_flipped(good), *_cut(good)):
            path.write_bytes(bad)
            found = look_up()
            assert found.result is CacheResult.REFUSED, (path, len(bad))
            assert found.images == ()
            assert path.name in found.message
        path.write_bytes(good)
    assert look_up().result is CacheResult.HIT


def _flipped(good: bytes) -> Iterator[bytes]:
    """Each with one byte that is another."""
    for number in range(8):
        at = number * (len(good) - 1) // 7
        yield good[:at] + bytes([good[at] ^ 0x11]) + good[at + 1 :]


def _cut(good: bytes) -> Iterator[bytes]:
    for length in (0, 1, len(good) // 2, len(good) - 1):
        yield good[:length]


def _first(entry: Path, folder: str) -> Path:
    return next(path for path in files(entry) if path.parent.name == folder)


def _flips(folder: str) -> Callable[[Path], None]:
    def damage(entry: Path) -> None:
        path = _first(entry, folder)
        *_, last = _flipped(path.read_bytes())
        path.write_bytes(last)

    return damage


def _cuts_a_binary(entry: Path) -> None:
    path = _first(entry, "binaries")
    os.truncate(path, path.stat().st_size // 2)


def _exchanges_binaries(entry: Path) -> None:
    one, other, *_ = (path for path in files(entry) if path.parent.name == "binaries")
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def _exchanges_binaries_and_checksums(entry: Path) -> None:
    _exchanges_binaries(entry)
    one, other, *_ = (path.name for path in files(entry) if path.parent.name == "binaries")

    def edit(manifest: Any) -> None:
        facts = manifest["files"]
        names = f"binaries/{one}", f"binaries/{other}"
        facts[names[0]], facts[names[1]] = facts[names[1]], facts[names[0]]

    edit_manifest(entry, edit)


DAMAGE = [
    pytest.param(_flips("images"), r"images/.* has another checksum", id="a byte of a graph"),
    pytest.param(_flips("binaries"), r"binaries/.* has another checksum", id="a byte of a kernel"),
    pytest.param(_cuts_a_binary, r"binaries/.* bytes instead of", id="a kernel cut short"),
    pytest.param(
        _exchanges_binaries,
        r"binaries/.* (bytes instead of|has another checksum)",
        id="two kernels exchanged",
    ),
    pytest.param(
        _exchanges_binaries_and_checksums,
        r"gives binaries/\w+ the content of another binary",
        id="two kernels exchanged with their checksums",
    ),
]


# --- graphs whose checksums fit ---------------------------------------------------------------


def edit_graph(entry: Path, edit: Edit, bucket: str = BUCKET) -> None:
    """Change a bucket's document, and every checksum and name that follows from it."""
    content = document(entry, bucket).read_bytes()
    program = json.loads(content)
    edit(program)
    changed = json.dumps(program).encode()
    assert json.loads(changed) != json.loads(content)
    replace_document(entry, bucket, changed)


def check_refused_everywhere(house: House, edit: Edit, message: str) -> None:
    """No graph is restored; what they say of their kernels is not used for others either."""
    for path in list(house.entry.glob("images/*")):
        edit_graph(house.entry, edit, path.stem.rpartition("-")[0])
    engine = house.refuses(f"{STORED_GRAPH} {message}")
    assert set(engine.states().values()) == {BucketState.CAPTURED}
    engine.close()


def _nodes(program: Any, kernel: str) -> list[Any]:
    """The launches of a kernel, in order."""
    names = [each["name"].rpartition(".")[2] for each in program["kernels"]]
    return [node for node in program["nodes"] if names[node["kernel"]] == kernel]


def _argument(program: Any, node: Any, name: str) -> Any:
    """Kind and value, which may be changed."""
    place = program["kernels"][node["kernel"]]["parameters"].index(name)
    return node["arguments"][place]


def _fewer_programs(kernel: str) -> Edit:
    def edit(program: Any) -> None:
        _nodes(program, kernel)[0]["grid"][0] -= 1

    return edit


def _drops(kernel: str) -> Edit:
    def edit(program: Any) -> None:
        program["nodes"].remove(_nodes(program, kernel)[0])

    return edit


def _gives(kernel: str, name: str, value: float) -> Edit:
    def edit(program: Any) -> None:
        _argument(program, _nodes(program, kernel)[-1], name)[1] = value

    return edit


def _exchanges_keys_and_values(program: Any) -> None:
    node = _nodes(program, "attention_decode")[0]
    one, other = (_argument(program, node, f"{name}_cache_ptr") for name in ("key", "value"))
    one[1], other[1] = other[1], one[1]


def _takes_another_norm(program: Any) -> None:
    _argument(program, _nodes(program, "add_norm")[0], "weight_ptr")[1] = "weights.norm"


def _exchanges_kernels_of_projections(program: Any) -> None:
    """Of the first one and of the one with an activation."""
    nodes = _nodes(program, "linear")
    gated = next(n for n in nodes if _argument(program, n, "out_ptr")[1] == "work.activation")
    assert nodes[0]["kernel"] != gated["kernel"]
    nodes[0]["kernel"], gated["kernel"] = gated["kernel"], nodes[0]["kernel"]


def _runs(kernel: int) -> Edit:
    def edit(program: Any) -> None:
        node = _nodes(program, "add_norm")[0]
        assert node["kernel"] != kernel
        node["kernel"] = kernel

    return edit


def _exchanges_code(program: Any) -> None:
    one, other = program["kernels"][:2]
    assert one["name"] != other["name"]
    one["binary"], other["binary"] = other["binary"], one["binary"]


def _exchanges_code_of_projections(program: Any) -> None:
    """All that is said of the two kernels but for what each is used as: also for other graphs."""
    nodes = _nodes(program, "linear")
    gated = next(n for n in nodes if _argument(program, n, "out_ptr")[1] == "work.activation")
    one, other = (program["kernels"][node["kernel"]] for node in (nodes[0], gated))
    assert one is not other
    for field in one.keys() - {"variant"}:
        one[field], other[field] = other[field], one[field]


def _has_too_many_threads(program: Any) -> None:
    for kernel in program["kernels"]:
        kernel["threads"] = 2048


def _loses_an_argument(program: Any) -> None:
    del _nodes(program, "draw_tokens")[0]["arguments"][-1]


_LOGITS = "is recorded anew: its logits"
_DRAWN = "is recorded anew: it draws"
_UNUSABLE = "has an unusable node"

EDITS = [
    pytest.param(_fewer_programs("embed_norm"), _LOGITS, id="a grid without the last sequence"),
    pytest.param(_fewer_programs("draw_tokens"), _DRAWN, id="a draw without the last sequence"),
    pytest.param(_exchanges_keys_and_values, _LOGITS, id="keys for values"),
    pytest.param(_takes_another_norm, _LOGITS, id="another weight of the same shape"),
    pytest.param(_drops("copy_inputs"), _LOGITS, id="no inputs"),
    pytest.param(_drops("attention_decode"), _LOGITS, id="no attention"),
    pytest.param(_drops("add_norm"), _LOGITS, id="no norm"),
    pytest.param(_drops("draw_tokens"), _DRAWN, id="no draw"),
    pytest.param(_exchanges_kernels_of_projections, _LOGITS, id="kernels of two projections"),
    pytest.param(_runs(0), f"{_UNUSABLE}: .* takes", id="the kernel of another node"),
    pytest.param(
        _runs(-1), f"{_UNUSABLE}: there is no kernel -1", id="a kernel counted from the end"
    ),
    pytest.param(
        _runs(99), f"{_UNUSABLE}: there is no kernel 99", id="a kernel that there is none of"
    ),
    pytest.param(_loses_an_argument, f"{_UNUSABLE}: .* takes", id="one argument less"),
    pytest.param(_gives("attention_decode", "scale", 0.5), _LOGITS, id="another scale"),
    pytest.param(_gives("attention_decode", "window", 1), _LOGITS, id="a window of one token"),
    pytest.param(
        _gives("add_norm", "eps", 1e-3), _LOGITS, id="a constant that moves the last bits"
    ),
    pytest.param(_gives("linear", "n_size", 16), _LOGITS, id="logits of 16 tokens only"),
]

KERNEL_EDITS = [
    pytest.param(_exchanges_code, f"{_UNUSABLE}: .*NOT_FOUND", id="code of two kernels"),
    pytest.param(_exchanges_code_of_projections, _LOGITS, id="code of two projections"),
    pytest.param(
        _has_too_many_threads,
        "was refused by the driver: (INVALID_VALUE|LAUNCH_OUT_OF_RESOURCES)",
        id="too many threads",
    ),
]
"""Of what a document says of its kernels, from which others may be launched."""
