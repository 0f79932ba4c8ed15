"""The gateway of the hub's NATS for spokes, which the dispatcher runs.

A request of JetStream enters, is compared with what this spoke may ask, and its answer leaves (`requests`).
A message that a spoke writes enters, waits until the spoke's budget has room (`budget`, `shares`), and leaves
to the log under its own subject (`writes`). Nothing else of a spoke reaches the account of the streams, but
pulls, acknowledgements and its lease.
"""

from shared.bus.spoke_gateway.gateway import SpokeGateway

__all__ = ["SpokeGateway"]
