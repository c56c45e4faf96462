from __future__ import annotations

import pytest

from tests.engine.server.serving import start_server, stop_server
from tests.engine.texts import VOCABULARY, write_model_folder
from warmgraph_engine.tokenizer.text import TextModel


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    return TextModel.load(
        write_model_folder(tmp_path_factory.mktemp("model")), vocabulary=VOCABULARY
    )


@pytest.fixture
async def serve(text):
    """Start servers; each is stopped at the end of the test."""
    started = []

    async def start(**settings):
        started.append(await start_server(text, **settings))
        return started[-1]

    yield start
    for served in started:
        await stop_server(served)


@pytest.fixture
async def served(serve):
    return await serve()
