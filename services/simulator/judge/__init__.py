"""Checks of what the services wrote to the streams; they serve simulated worlds and real systems.

Enters: the entries of the streams, decoded by `message_logs`.
Inside: the quota of each queue at each decision (`quota_ledger`, the auditor's ledger), and one function
for each property (`checks`, `time_limits`). Nothing is shared with the quota engine.
Leaves: sentences that say what is wrong; none if all is well.
"""
