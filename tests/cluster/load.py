"""Runs inside the cluster, in the tests' client pod: steady load on a Service, one JSON line each.

Called as `python3 -c FILE URL MODEL CALLERS SECONDS`. Each of the CALLERS asks one question after
the other, at least one, until standard input ends or SECONDS are over, so the load is bounded in
count and time. Every second caller keeps its connection, and so asks one pod until that drains; the
others connect anew for each question. Uses aiohttp, which the control-plane image has.
"""

import asyncio
import json
import sys
import time

import aiohttp

QUESTIONS = ("Name a colour.", "What is two plus two?", "Say hello.", "Name an animal.")


async def ask(session: aiohttp.ClientSession, url: str, model: str, number: int) -> None:
    stream = number % 2 == 1
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}],
        "max_tokens": 8,
        "temperature": 0,
        "stream": stream,
    }
    began = time.time()
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            text = await response.text()
            status, complete = response.status, _complete(text, stream)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        text, status, complete = repr(error), 0, False
    line = {
        "status": status,
        "complete": complete,
        "began": began,
        "seconds": time.time() - began,
        "text": "" if complete else text[:500],
    }
    print(json.dumps(line), flush=True)


def _complete(text: str, stream: bool) -> bool:
    return text.rstrip().endswith("data: [DONE]") if stream else '"finish_reason"' in text


async def caller(url: str, model: str, number: int, ended: asyncio.Event) -> None:
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(force_close=number % 2 == 1)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        while True:
            await ask(session, url, model, number)
            number += 1
            if ended.is_set():
                return


async def main() -> None:
    url, model, callers, seconds = sys.argv[1:]
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    loop.call_later(float(seconds), ended.set)
    await asyncio.gather(*(caller(url, model, i, ended) for i in range(int(callers))))


asyncio.run(main())
