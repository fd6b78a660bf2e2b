"""Lists the objects below a folder, page by page."""

from __future__ import annotations

import asyncio
from typing import Any

from silva.io.objects.fetching import BrokenOff


async def list_below(client: Any, folder: str, deadline: float) -> list[Any]:
    """The metadata of the objects; `deadline` is for each page."""
    import obstore

    found: list[Any] = []
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(deadline) as limit:
            async for metas in obstore.list(client, folder or None, chunk_size=1000):
                found += metas
                limit.reschedule(now() + deadline)
    except obstore.exceptions.GenericError as error:
        if "response body" in str(error):
            raise BrokenOff(error) from None
        raise
    return found
