"""New versions of tables and indices take over between requests."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from tests.serve.engine_tools import turns

import silva as sv
from silva.serve.engine.refresh import Refreshing, refreshed


def passages(number: int, text: str) -> sv.Pipeline:
    return sv.from_columns({"id": [number], "text": [text]})


async def ids(engine: Refreshing, q: str = "fox") -> list[int]:
    outcome = await engine.answer({"q": q}, deadline=60)
    return [hit["id"] for hit in outcome.rows[0]["hits"]]


def test_an_index_is_served_at_its_version_until_it_is_refreshed(tmp_path: Path) -> None:
    index = passages(1, "a fox").to_index(tmp_path / "idx", keyword="text", workers=0)
    asked = sv.requests("q").derive(hits=index.search("q"))

    async def every() -> None:
        engine = Refreshing(asked.plan)
        await engine.warm()
        assert await ids(engine) == [1]
        assert not await engine.refresh()
        index.add(passages(2, "a fox"), workers=0).gc()
        assert await ids(engine) == [1]
        assert await engine.refresh()
        assert await ids(engine) == [1, 2]
        assert engine.refreshes == 1
        engine.close()

    asyncio.run(every())


def test_tables_in_joins_are_refreshed_and_chosen_versions_are_not(tmp_path: Path) -> None:
    table = sv.Table.create(tmp_path / "t", pa.table({"item": ["tea"], "price": [1.0]}))
    chosen = sv.read_table(table, version=table.version.number)
    asked = sv.requests("item").join(table.read(), on="item")
    asked = asked.join(chosen.derive(old=sv.col("price")).select("item", "old"), on="item")

    async def price(engine: Refreshing, item: str) -> tuple[Any, Any]:
        row = (await engine.answer({"item": item}, deadline=60)).rows[0]
        return row["price"], row["old"]

    async def every() -> None:
        engine = Refreshing(asked.plan)
        table.append(pa.table({"item": ["jam"], "price": [2.0]}))
        assert await price(engine, "jam") == (None, None)
        assert await engine.refresh()
        assert await price(engine, "jam") == (2.0, None)
        assert await price(engine, "tea") == (1.0, 1.0)
        engine.close()

    asyncio.run(every())


def test_requests_in_flight_end_where_they_began(tmp_path: Path) -> None:
    index = passages(1, "a fox").to_index(tmp_path / "idx", keyword="text", workers=0)
    begun, go = threading.Event(), threading.Event()

    def holds(q):
        begun.set()
        if q == "a fox":
            go.wait(timeout=60)
        return q

    asked = sv.requests("q").derive(held=holds).derive(hits=index.search("held"))

    async def every() -> None:
        engine = Refreshing(asked.plan)
        await engine.warm()
        first = asyncio.ensure_future(ids(engine, "a fox"))
        await asyncio.to_thread(begun.wait, 60)
        index.add(passages(2, "a fox"), workers=0).gc()
        assert await engine.refresh()
        assert await ids(engine) == [1, 2]
        go.set()
        assert await first == [1]
        engine.close()

    asyncio.run(every())


def test_new_versions_are_looked_for_in_the_background(tmp_path: Path) -> None:
    index = passages(1, "a fox").to_index(tmp_path / "idx", keyword="text", workers=0)

    async def every() -> None:
        engine = Refreshing(sv.requests("q").derive(hits=index.search("q")).plan, refresh=0.01)
        await engine.warm()
        index.add(passages(2, "a fox"), workers=0)
        while not engine.refreshes:
            await asyncio.sleep(0.01)
        assert await ids(engine) == [1, 2]
        engine.close()
        await turns()

    asyncio.run(every())


def test_a_version_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    index = passages(1, "a fox").to_index(tmp_path / "idx", keyword="text", workers=0)

    async def every() -> None:
        engine = Refreshing(sv.requests("q").derive(hits=index.search("q")).plan)
        await engine.warm()
        old = {path.name for path in (tmp_path / "idx" / "parts").iterdir()}
        index.add(passages(2, "a fox that nobody has opened"), workers=0)
        for path in (tmp_path / "idx" / "parts").iterdir():
            if path.name not in old:
                path.write_bytes(b"damaged")
        with pytest.raises(sv.SilvaError, match="damaged"):
            await engine.refresh()
        assert await ids(engine) == [1]
        engine.close()

    asyncio.run(every())


def test_a_plan_without_new_versions_is_the_same_object(tmp_path: Path) -> None:
    index = passages(1, "a fox").to_index(tmp_path / "idx", keyword="text", workers=0)
    chosen = sv.Index(tmp_path / "idx", version=1)
    prices = {"q": ["a"], "price": [1]}
    plan = sv.requests("q").join(prices, on="q").derive(hits=chosen.search("q")).plan
    index.add(passages(2, "a fox"), workers=0)
    assert refreshed(plan) is plan


def test_a_server_refreshes_what_it_answers_from(tmp_path: Path) -> None:
    index = passages(1, "a fox").to_index(tmp_path / "idx", keyword="text", workers=0)
    asked = sv.requests("q").derive(hits=index.search("q"))
    with (
        asked.serve(port=0, refresh=0.01) as server,
        httpx.Client(
            base_url=server.address, headers={"authorization": f"Bearer {server.token}"}, timeout=60
        ) as client,
    ):
        found: list[int] = []
        index.add(passages(2, "a fox"), workers=0).gc()
        while found != [1, 2]:
            reply = client.post("/", json={"q": "fox"})
            assert reply.status_code == 200
            found = [hit["id"] for hit in reply.json()["hits"]]
        assert "silva_refreshes_total 1" in client.get("/metrics").text
