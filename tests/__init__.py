"""The tests, by cost: see docs/contributing.md."""
