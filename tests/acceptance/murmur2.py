"""Which partition Java's and Spark's clients send a key to, worked out by hand."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def murmur2(key: bytes) -> int:
    """Kafka's own variant of MurmurHash2, 32 bits, unsigned."""
    h = (0x9747B28C ^ len(key)) & _MASK
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(key[at : at + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if rest := key[whole:]:
        h = ((h ^ int.from_bytes(rest, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """As the Java client does: the hash made positive, modulo the partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
