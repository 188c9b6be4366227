"""
Comparisons of database, topics and lake.

`comparison.py` is the full audit, message by message. It reads the database
through `jdbc.py` (its address is in `database_url.py`), checks `latest` with
`latest_rows.py`, computes latencies with `latency.py`, and collects (`collecting.py`)
the counts in a `Report` (`report.py`). `verdict.py` judges the report, promise by
promise. `printout.py` renders both as JSON and text, `page.py` as an HTML page with
the charts of `charts.py`. `past_audits.py` keeps outcomes, so that the next audit can
continue.

`bucket_counts.py` is the cheap audit: it only compares counts of database and
lake per time bucket, and does not read Kafka.
"""
