"""
Finds messages in Protobuf descriptors, by name or by position in a file.

FileDescriptorSets come from `protoc --descriptor_set_out --include_imports`,
single files from a registry.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Final, TypeAlias

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool

from ...exceptions import ConfigurationError
from .framing import Undecodable

Files: TypeAlias = dict[str, descriptor_pb2.FileDescriptorProto]

BUNDLED: Final = "google/protobuf/"
"""Files that the protobuf package provides."""


def name_at(file: descriptor_pb2.FileDescriptorProto, path: Iterable[int]) -> str:
    """
    Return the full name of a message by its indexes, from the outermost inwards.

    Raises:
        Undecodable: the file has no such message.
    """
    names = [file.package] if file.package else []
    messages = file.message_type
    for index in path:
        if not 0 <= index < len(messages):
            raise Undecodable(f"{file.name} has no message at {list(path)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def find_message(serialized: bytes, name: str) -> Descriptor:
    """
    Return the message with this name from a serialized FileDescriptorSet.

    Raises:
        ConfigurationError: the set is invalid or incomplete, or the message is
            missing.
    """
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(serialized)
        files = {file.name: file for file in found.file}
        pool = DescriptorPool()
        done: set[str] = set()
        for file in files:
            _add(file, files, pool, done)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"invalid descriptor set (protoc --descriptor_set_out): {error}"
        ) from error
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise ConfigurationError(
            f"the descriptor set has no message {name}."
        ) from error


def _add(name: str, files: Files, pool: DescriptorPool, done: set[str]) -> None:
    """Add a file to the pool, after those that it imports."""
    if name in done:
        return
    done.add(name)
    if (file := files.get(name)) is None:
        file = _bundled(name)
    for imported in file.dependency:
        _add(imported, files, pool, done)
    pool.AddSerializedFile(file.SerializeToString())


def _bundled(name: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    if name.startswith(BUNDLED):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        import_module(module).DESCRIPTOR.CopyToProto(file)
        return file
    raise ConfigurationError(
        f"the imported file {name} is missing: run protoc with --include_imports."
    )
