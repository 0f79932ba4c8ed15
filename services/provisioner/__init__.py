"""Gives machines to multi-platform TaskRuns, and answers the admission check `sluicegate.dev/machines`.

Enters: observed TaskRuns, the host configuration and AdmissionChecks; decisions of quota; the records that
an earlier leader wrote. Leaves: a `HostState` for each TaskRun (the patcher makes its secret), a
`PlatformState` for each platform, a `CheckState` for each reservation; orders to clouds, users on hosts.

`app` builds the service, `term` is one term of leadership, `allocation` decides.
"""
