"""The only package that imports confluent_kafka: adapters of the Kafka ports."""
