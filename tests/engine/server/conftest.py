from __future__ import annotations

import pytest
from aiohttp import ClientSession, web
from openai import AsyncOpenAI

from tests.engine.harness import Engine
from tests.engine.server.serving import MODEL, Served
from tests.engine.texts import VOCABULARY, write_model_folder
from tests.engine.toy import limits
from warmgraph_api.report import Stage
from warmgraph_engine.server.app import create_app, make_runner
from warmgraph_engine.server.service import ServerSettings, Service
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

    async def start(*, attach: bool = True, settings: ServerSettings | None = None, **changes):
        loop_settings = {name: changes.pop(name) for name in ("max_waiting",) if name in changes}
        engine = Engine(limits(vocabulary=VOCABULARY, **changes), **loop_settings)
        served = Served(engine=engine, text=text)
        served.service = Service(
            model_name=MODEL,
            stage=lambda: served.stage,
            metrics=engine.loop._metrics,
            settings=settings,
        )
        served.runner = make_runner(create_app(served.service))
        await served.runner.setup()
        await web.TCPSite(served.runner, "127.0.0.1", 0).start()
        host, port = served.runner.addresses[0]
        served.url = f"http://{host}:{port}"
        served.client = ClientSession(served.url)
        served.openai = AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
        started.append(served)
        if attach:
            served.service.attach(engine.loop, text)
            served.stage = (Stage.SERVING, "")
        return served

    yield start
    for served in started:
        served.engine.executor.gate.set()
        await served.openai.close()
        await served.client.close()
        await served.runner.cleanup()
        await served.service.close()


@pytest.fixture
async def served(serve):
    return await serve()
