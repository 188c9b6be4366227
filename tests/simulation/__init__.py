"""A seeded simulator of whole outboxes under faults; see docs/concepts/simulation.md."""
