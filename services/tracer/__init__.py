"""The tracer makes one trace for each workload from the logs, and sends it to an OTLP collector.

In: `WORKLOADS`, `ADMISSIONS`, `CHECKS`, `DISPATCHES` and `OUTCOMES`, read from where the last record says.
Inside: the events of each open workload, which become spans when the workload has ended.
Out: spans to the collector, and a record on `TRACES` of how much the collector has accepted.
"""
