"""What the console tells Prometheus."""

from prometheus_client import Counter, Gauge

REBUILDS = Counter("sluicegate_console_rebuilds", "How often the view was read anew.", ["because"])
REQUESTS = Counter("sluicegate_console_requests", "Questions answered.", ["route", "code"])
CONNECTIONS_REFUSED = Counter(
    "sluicegate_console_connections_refused",
    "Connections closed because there were too many, or because their clients were too slow.",
    ["cause"],
)
STREAMS = Gauge("sluicegate_console_streams", "Pages that follow what happens.")
