"""
Comparisons of database, topics and lake.

`comparison.py` is the full audit, message by message. It reads the database
through `jdbc.py`, computes latencies with `latency.py`, and collects the counts
in a `Report` (`report.py`). `page.py` renders the report as an HTML page with
the charts of `charts.py`.

`bucket_counts.py` is the cheap audit: it only compares counts of database and
lake per time bucket, and does not read Kafka.
"""
