"""Translation between messages and the engine. No state, no decisions.

`inbound` turns manifests and workload states into facts. `outbound` turns decisions into the fields
of an `Admission`, and admissions on record into facts.
"""
