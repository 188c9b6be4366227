"""The question where a partition begins and ends, while it gets another leader."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from django_outbox.kafka.partitions import first_and_end

AT = TopicPartition("orders", 0)
MOVED = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class ConsumerOf:
    """Answers with these, one after the other, and with the last of them for good."""

    def __init__(self, *answers: KafkaError | tuple[int, int]) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.looked_up: list[str] = []

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return answer

    def list_topics(self, topic: str, timeout: float) -> None:
        self.looked_up.append(topic)


def ask(consumer: ConsumerOf, *, timeout: float = 10) -> tuple[int, int]:
    return first_and_end(cast("Consumer", consumer), AT, timeout=timeout)


def test_the_new_leader_is_looked_up_and_asked() -> None:
    consumer = ConsumerOf(MOVED, MOVED, (3, 17))
    assert ask(consumer) == (3, 17)
    assert consumer.looked_up == ["orders", "orders"]


@pytest.mark.parametrize(("error", "timeout"), [(DENIED, 10), (MOVED, 0)])
def test_a_refusal_or_no_time_left_is_the_end(
    error: KafkaError, timeout: float
) -> None:
    consumer = ConsumerOf(error)
    with pytest.raises(KafkaException) as caught:
        ask(consumer, timeout=timeout)
    assert caught.value.args[0] is error
    assert consumer.asked == 1
