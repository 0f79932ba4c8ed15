"""Real faults on real parts: what breaks, how it is made to break, and what must be so afterwards.

Each fault is a row of one table. It happens to a running system: one or three nats-servers, an API server,
and every service as a process of its own, while jobs are created. Afterwards the books are judged that the
API server itself wrote: nothing lost, nothing started twice, no quota exceeded at any moment, every quota
given back, and a new job is admitted soon. `python -m tests.faults` prints one line for each (`make faults`).
"""
