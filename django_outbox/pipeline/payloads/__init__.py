"""
Values in Avro and Protobuf: from bytes to typed columns, in Python.

    settings ─ declared.py ─▶ Encoded ─ decoder.py ─▶ Decoder (avro, protobuf)
    batch ─ columnar.py ─▶ ids of writers' schemas ─ registry.py ─▶ schemas
                 └───────▶ workers: bytes ─ Decoder ─▶ Arrow column, or a reason

The driver asks the registry and hands what it has learned to the workers: they
need neither its address nor its password, and one that is away stops the batch
before a row of it was judged. What a worker cannot decode is the value's own
fault, and goes to `quarantine` with the reason.

Only topics that declare such a schema pass through Python. `avro.py` and
`protobuf.py` alone import the packages of the extra `registry`, and only when
a topic needs them.
"""
