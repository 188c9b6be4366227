"""
The adapters of the Kafka ports: confluent_kafka for harvesters and consumers.

- Configuration: `config.py` makes librdkafka's properties from the settings;
  `validation.py` finds, before anything starts, those that librdkafka refuses
  (`properties.txt` has their names, for hints).
- Clients: `clients.py` creates them. `client_errors.py` receives their errors and
  log lines, and logs each error once; `brokers.py` does so for brokers, shared by
  all clients; `causes.py` reads the causes from librdkafka's texts. `queueing.py`
  waits for room in a client.
- Election: `membership.py` is the member of the leader group. `join_gate.py`
  delays joins, `group_members.py` tells who is in the group, `topics.py` creates the
  topic, `heartbeats.py` has the format, `lookout.py` and `watch.py` detect other
  outboxes.
- Relay, at least once: `producer.py`, with `failures.py` for its errors;
  `batch_limit.py` learns how large batches may be.
- Relay, exactly once: `transactions.py` sends records with their ledger
  (`ledger_topic.py`, read by `ledger_partitions.py`) under the leader's
  `fencing_token.py`; `destinations.py`
  checks topics beforehand, `delivery_reports.py` finds who failed.
- Consumers: `consumer.py` is a member of a consumer group; `delayed_messages.py`
  keeps what is not due; `conversion.py` makes the values that handlers get;
  `consumer_output.py` sends dead letters and the output of transforms;
  `partitions.py` reads the state of partitions.
- People: `cluster_reader.py` reads topics and brokers for the doctor, as
  `topic_facts.py`; `topic_tail.py` reads a topic's last messages.
"""
