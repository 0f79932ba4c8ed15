"""The admission check `sluicegate.dev/machines`: slots are reserved before a run starts.

Enters: quota reservations, AdmissionChecks, and the results of allocation. Leaves: requests for slots to
reserve, and a `CheckState` for each reservation.
"""
