"""TaskRuns as the provisioner reads them, and the secrets that it makes for them.

Enters: the body of a TaskRun. Leaves: a `HostRequest` if the TaskRun needs a host, whether it has ended,
and the content of its secret.
"""
