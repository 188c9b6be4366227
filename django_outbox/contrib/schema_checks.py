"""System checks of `check --deploy`: declared topics whose schemas are missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning

from ..exceptions import ConfigurationError, RegistryUnavailable
from .contracts import Topic, declared_topics
from .registered_codec import RegisteredCodec, subject_of


def check_schemas(**_: Any) -> list[CheckMessage]:
    """E017, W018 and W019: what the schema registry says of declared topics."""
    return [
        message
        for topic in declared_topics()
        if isinstance(topic.codec, RegisteredCodec) and not topic.variables
        for message in _messages(topic, topic.codec)
    ]


def _messages(topic: Topic[Any, Any], codec: RegisteredCodec) -> Iterator[CheckMessage]:
    name, subject = topic.name, subject_of(topic.name)
    try:
        if codec.is_registered(name):
            return
        is_compatible = codec.is_compatible(name)
    except (ConfigurationError, RegistryUnavailable) as error:
        yield CheckWarning(
            f"{name}: it is not known whether its schema is registered. {error}",
            hint="Start the registry, or correct the properties of SchemaRegistry.",
            obj=topic,
            id="django_outbox.W019",
        )
        return
    if is_compatible:
        yield CheckWarning(
            f"{name}: its schema is not registered as {subject} in "
            f"{codec.registry.url}, so stash() would fail.",
            hint="Call register_schemas() before the processes that write start.",
            obj=topic,
            id="django_outbox.W018",
        )
    else:
        yield Error(
            f"{name}: its schema is not compatible with the latest version of "
            f"{subject} in {codec.registry.url}, which would refuse it.",
            hint="Change the type so that it is compatible, or write to a new topic.",
            obj=topic,
            id="django_outbox.E017",
        )
