"""
Protobuf's descriptors: a message by its name, a name by its place in a file.

The sets of files come from `protoc --descriptor_set_out --include_imports`, or,
one file at a time, from a registry.
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
"""Files that the package has itself."""


def name_at(file: descriptor_pb2.FileDescriptorProto, path: Iterable[int]) -> str:
    """
    The full name of a message by its place: the file's third, in that the first.

    Raises:
        Undecodable: the file has no message there.
    """
    names = [file.package] if file.package else []
    messages = file.message_type
    for place in path:
        if not 0 <= place < len(messages):
            raise Undecodable(f"{file.name} has no message at {list(path)}")
        names.append(messages[place].name)
        messages = messages[place].nested_type
    return ".".join(names)


def find_message(serialized: bytes, name: str) -> Descriptor:
    """
    Return the message of this name from a set of files.

    Raises:
        ConfigurationError: it is no such set, is not whole, or has no such message.
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
            f"it is no set of descriptors (protoc --descriptor_set_out): {error}"
        ) from error
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise ConfigurationError(f"there is no message {name} in its file.") from error


def _add(name: str, files: Files, pool: DescriptorPool, done: set[str]) -> None:
    """Add a file to the pool, behind those that it imports."""
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
        f"{name} is imported and missing: make the file by protoc --include_imports."
    )
