"""A shop: places orders and tells the world about them through the outbox."""
