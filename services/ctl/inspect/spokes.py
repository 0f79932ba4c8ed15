"""`sluice spokes`: the state of every spoke."""

from pathlib import Path

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.command import Query, read, show


async def show_spokes(nats_url: str | None, directory: Path) -> bool:
    """Print a row for each spoke; return whether all of them are connected."""
    query = Query.of("spokes", output="wide", namespace=None)
    async with open_reader(nats_url, directory) as reader:
        rows = query.rows(await read(reader, query.inputs()), utc_now())
    if not rows:
        print("No MultiKueueCluster names a spoke.")
        return True
    print("\n".join(show(query, rows)))
    connected = [column.title for column in query.resource.columns].index("CONNECTED")
    return all(row.cells[connected] == str(True) for row in rows)
