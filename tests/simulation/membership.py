"""
A process's client of the leader group: the shipped fake, and its network.

What the fake leaves to its users is added here: a connection that ends when a
request is not answered, a node that is cut off, and a thread that wakes up when
there is something to serve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django_outbox.election.ports import Listener
from django_outbox.exceptions import KafkaUnavailable
from tests.fakes.client import Confirmed, FakeClient, Told
from tests.fakes.membership import FakeMembership

from .timing import SESSION_TIMEOUT

if TYPE_CHECKING:
    from .process import Process


class Membership(FakeMembership):
    """Cannot join while its node is cut from the group."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.world.group, process.name)
        self._process = process

    def join(self, *listeners: Listener) -> None:
        if self._process.node.is_cut_from("group"):
            raise KafkaUnavailable
        self.leave()
        self._listeners = listeners
        self._client = _Client(self._process)


@dataclass(slots=True, eq=False)
class _Request:
    connection: int
    is_answered: bool = False


class _Client(FakeClient):
    """
    Gives a connection up on which a request is not answered for a session.

    So does librdkafka, and the argument that two terms never overlap rests on
    it: see `election/__init__`.
    """

    def __init__(self, process: Process) -> None:
        self._connection = 0
        self._served: _Request | None = None
        self._is_writing = False
        self._group_latency = process.world.group.latency
        group = process.world.group
        super().__init__(group.coordinator, group.time, group.timing, self._latency_of)
        self.inbox = _Inbox(process)

    def write(self, value: object, shard: int) -> None:
        # It goes to the partition's leader, on another connection.
        self._is_writing = True
        super()._request(lambda: self._coordinator.logs[shard].append(value))
        self._is_writing = False

    def _latency_of(self) -> float | None:
        latency = self._group_latency()
        if latency is None and not self._is_writing:
            # TCP delivers what follows only after what was lost, or nothing.
            self._reconnect()
        return latency

    def _request(self, action: Callable[[], object]) -> None:
        request = _Request(self._connection)
        self._time.after(SESSION_TIMEOUT, lambda: self._expire(request))

        def arrive() -> None:
            if request.connection != self._connection:
                return
            self._served = request
            action()
            # What gives no answer here gets one that means nothing.
            request.is_answered |= self._served is not None
            self._served = None

        super()._request(arrive)

    def _reply(self, action: Callable[[], object]) -> None:
        request, self._served = self._served, None
        if request is None:
            # A rebalance has ended, which may take its time.
            super()._reply(action)
            return

        def arrive() -> None:
            request.is_answered = True
            if request.connection == self._connection:
                action()

        super()._reply(arrive)

    def _expire(self, request: _Request) -> None:
        if not request.is_answered and request.connection == self._connection:
            self._reconnect()

    def _reconnect(self) -> None:
        self._connection += 1
        # What travels on the next one does not queue behind the last.
        self._arrivals = dict.fromkeys(self._arrivals, 0.0)


class _Inbox(deque[Told | Confirmed]):
    """What a client has noted; ends the wait of the thread that polls."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def append(self, item: Told | Confirmed) -> None:
        super().append(item)
        self._process.elect.wake()
