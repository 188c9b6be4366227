"""librdkafka's own broker, in memory: it answers with the errors that a test wants."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

PRODUCE: Final = 0
INIT_PRODUCER_ID: Final = 22
"""Requests, by their numbers in Kafka's protocol."""


class MockBroker:
    """Lives as long as this object."""

    def __init__(self) -> None:
        self._host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        maps = Path("/proc/self/maps").read_text().splitlines()
        library = next(line.split()[-1] for line in maps if "librdkafka" in line)
        self._library = ctypes.CDLL(library)
        pointer = ctypes.c_void_p
        for name, result, arguments in (
            ("rd_kafka_handle_mock_cluster", pointer, [pointer]),
            ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [pointer]),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        # The client's handle is the first field of the driver's object.
        handle = pointer.from_address(id(self._host) + object.__basicsize__)
        self._cluster = pointer(self._library.rd_kafka_handle_mock_cluster(handle))
        servers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.servers: str = servers.decode()

    def refuse(self, request: int, code: int) -> None:
        """Answer the next request of this kind with an error of Kafka's protocol."""
        self._library.rd_kafka_mock_push_request_errors(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(1), code
        )
