"""
Values that Spark cannot read alone, in Python: Avro and Protobuf, and wrapped values.

    settings ─ declared.py ─▶ Encoded ─ decoder.py ─▶ Decoder (avro, protobuf)
    batch ─ columnar.py ─▶ ids of writers' schemas ─ registry.py ─▶ schemas
                 └───────▶ workers: bytes ─ Decoder ─▶ Arrow column, or a reason

Only the driver asks the registry; it sends the schemas to the workers, which
need neither the address nor the password. If the registry is unavailable, the
batch fails before any of its records is processed. A value that a worker
cannot decode is invalid, and goes to `quarantine` with the reason.

`framing.py` reads Confluent's wire format. `avro_types.py` maps Avro types to
columns, `descriptors.py` finds messages in Protobuf's descriptors.

`required_packages.py` says what to install.

`wrapping.py` has what compresses, encrypts and checks values and undoes it, for
writers and consumers, too. `unwrapping.py` does it in the workers, for the records
whose headers say so, where the setting `unwrap` is on or a reader asks for it.

Only topics that declare such a schema are decoded in Python. Only `avro.py`,
`protobuf.py` and `descriptors.py` import the packages of the extra `registry`,
and only when a topic needs them.
"""
