"""Billing: writes invoices, in one process at a time, the leader's."""
