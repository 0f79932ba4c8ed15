"""Jobs that run on another cluster than the one where they were submitted. A cluster can be both sides.

Enters on a spoke: orders of the hub (`Dispatch`). On the hub: the status of copies, spokes and checks.
Inside: `copies` creates and removes the copies of jobs, and decides whether one may start; `heartbeat`
tells the hub that the spoke lives, and stops copies whose lease has expired; `priority` updates the
priority class of copies; `hub_status` writes at the hub.
Leaves: copies on the spoke, heartbeats and copy states for the hub, and status at the hub.
"""
