"""docs/cache-key.md, where people look up a field that a miss has named."""

from __future__ import annotations

import re

from warmgraph_api.cachekey import CacheKey
from warmgraph_api.keyreference import key_reference

ROWS = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", key_reference(), re.MULTILINE)


def test_every_field_has_a_row_in_the_order_in_which_a_miss_names_it() -> None:
    assert [name for name, _, _ in ROWS] == list(CacheKey.__struct_fields__)


def test_a_row_says_what_a_field_holds_and_why_it_is_there() -> None:
    for name, what, why in ROWS:
        assert what.endswith("."), name
        assert why.endswith(".") and len(why) > 15, name
