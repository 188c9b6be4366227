"""A way to a server that has the faults of a network."""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Self, TypeAlias

_CHUNK: Final = 65_536

_QUEUED: Final = 64
"""Chunks on their way; with more, TCP keeps the sender waiting."""

_Queue: TypeAlias = asyncio.Queue[tuple[float, bytes]]


class ImpairedLink:
    """
    Forwards connections from a port of this machine to a server.

    It never drops a byte for good: what it holds arrives when it is healed, as what
    a network has lost arrives when TCP sends it again.

    Args:
        port: Where it listens.
        server: Host and port.
    """

    def __init__(self, port: int, server: tuple[str, int]) -> None:
        self.address = f"127.0.0.1:{port}"
        self.delay = 0.0
        """Seconds on each way."""
        self.piece = _CHUNK
        """Bytes that are sent at once."""
        self._port = port
        self.server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        """Set while something gets through that way."""
        self._requests.set()
        self._answers.set()
        self._transports: set[asyncio.WriteTransport] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._listener = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, "127.0.0.1", self._port), self._loop
        ).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def hold(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing through, either way or one way; connections stay open."""
        for way, is_held in ((self._requests, requests), (self._answers, answers)):
            if is_held:
                self._loop.call_soon_threadsafe(way.clear)

    def heal(self) -> None:
        """Have no fault any more."""
        self.delay, self.piece = 0.0, _CHUNK
        for way in (self._requests, self._answers):
            self._loop.call_soon_threadsafe(way.set)

    def reset(self) -> None:
        """End all connections at once."""
        self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for transport in list(self._transports):
            transport.abort()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            answers, server = await asyncio.open_connection(*self.server)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer.transport, server.transport}
        self._transports |= ends
        try:
            async with asyncio.TaskGroup() as group:
                for source, target, way in (
                    (reader, server, self._requests),
                    (answers, writer, self._answers),
                ):
                    queue: _Queue = asyncio.Queue(_QUEUED)
                    group.create_task(self._read(source, queue))
                    group.create_task(self._write(queue, target, way))
        except* OSError:
            pass
        finally:
            self._transports -= ends
            for end in ends:
                end.abort()

    async def _read(self, source: asyncio.StreamReader, queue: _Queue) -> None:
        data = b"first"
        while data:
            data = await source.read(_CHUNK)
            await queue.put((self._loop.time() + self.delay, data))

    async def _write(
        self, queue: _Queue, target: asyncio.StreamWriter, way: asyncio.Event
    ) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))  # a slow network
            await way.wait()
            if not data:
                raise ConnectionResetError
            for begin in range(0, len(data), piece := self.piece):
                target.write(data[begin : begin + piece])
                await target.drain()

    async def _close(self) -> None:
        self._listener.close()
        self._abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
