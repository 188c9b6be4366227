"""The list of librdkafka's properties, from which hints come, is librdkafka's."""

from __future__ import annotations

import ctypes
import os
import re
from importlib import resources
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, Producer

LIST = resources.files("django_outbox.kafka") / "properties.txt"


def known() -> list[str]:
    return [line for line in LIST.read_text("utf-8").splitlines() if line[0] != "#"]


def of_librdkafka(folder: Path) -> list[str]:
    """Let librdkafka print its table of properties; callbacks are none of them."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    library = ctypes.CDLL(next(x.split()[-1] for x in maps if "librdkafka" in x))
    libc = ctypes.CDLL(None)
    libc.fdopen.restype = ctypes.c_void_p
    table = folder / "table"
    descriptor = os.open(table, os.O_WRONLY | os.O_CREAT)
    stream = ctypes.c_void_p(libc.fdopen(descriptor, b"w"))
    library.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    rows = re.findall(r"^([a-z][\w.]+) +\| +[CP*] +\|", table.read_text(), re.MULTILINE)
    callbacks = re.compile(r".*_cb|opaque|interceptors|default_topic_conf")
    return sorted({row for row in rows if not callbacks.fullmatch(row)})


def test_the_list_is_of_the_version_that_it_names(tmp_path: Path) -> None:
    """To renew it, write what the function above returns, and the version."""
    title = LIST.read_text("utf-8").partition("\n")[0]
    version, _ = confluent_kafka.libversion()
    if f"librdkafka {version}," not in title:
        pytest.skip(f"{title}, and this is {version}")
    assert known() == of_librdkafka(tmp_path)


def test_every_name_in_the_list_is_one_that_a_client_knows() -> None:
    unknown = []
    for name in known():
        try:
            Producer({name: "", "log_level": 0})
        except TypeError:
            # One of the driver's own, which it knows by its type.
            continue
        except KafkaException as error:
            if "No such configuration property" in error.args[0].str():
                unknown.append(name)
    assert unknown == []
