"""A small business app: what a project has beside the outbox."""
