"""
Help for the tests of projects that use the outbox.

- `plugin.py`: pytest fixtures, which pytest loads once the package is installed.
- `faults.py`: wrappers that add faults to a real producer or outbox table.
"""
