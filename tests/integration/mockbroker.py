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
        self._library = librdkafka()
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
        # Let the first member of a group have its partitions at once.
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(
            self._cluster, ctypes.c_int32(0)
        )

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic; the admin client of the driver cannot."""
        error = self._library.rd_kafka_mock_topic_create(
            self._cluster, topic.encode(), partitions, 1
        )
        assert error == 0

    def refuse(self, request: int, code: int) -> None:
        """Answer the next request of this kind with an error of Kafka's protocol."""
        self._library.rd_kafka_mock_push_request_errors(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(1), code
        )


def librdkafka() -> ctypes.CDLL:
    """The library below the driver, which must have made a client before."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in maps if "librdkafka" in line))


def produce_with_header_name(
    servers: str, topic: str, value: bytes, name: bytes
) -> None:
    """Write one message with a header whose name may be any bytes."""
    pointer, size = ctypes.c_void_p, ctypes.c_ssize_t
    client = Producer({"bootstrap.servers": servers})
    library = librdkafka()
    library.rd_kafka_headers_new.restype = pointer
    library.rd_kafka_headers_new.argtypes = [ctypes.c_size_t]
    library.rd_kafka_header_add.argtypes = [
        *(pointer, ctypes.c_char_p, size, ctypes.c_char_p, size)
    ]
    headers = library.rd_kafka_headers_new(1)
    library.rd_kafka_header_add(headers, name, len(name), b"1", 1)
    # The client's handle is the first field of the driver's object.
    handle = pointer.from_address(id(client) + object.__basicsize__)
    error = library.rd_kafka_producev(
        handle,
        *(_TOPIC, ctypes.c_char_p(topic.encode())),
        *(_VALUE, ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
        *(_FLAGS, ctypes.c_int(_COPY)),
        *(_HEADERS, pointer(headers)),
        _END,
    )
    assert error == 0
    assert client.flush(15) == 0


_END, _TOPIC, _VALUE, _FLAGS, _HEADERS = 0, 1, 4, 7, 10
"""Kinds of arguments of `rd_kafka_producev()`."""
_COPY: Final = 2
"""The flag with which it copies the value."""
