"""The host configuration: platforms, static hosts, machine types, and the names of all of them.

Enters: the data of the ConfigMap `host-config`, and mounted secrets. Leaves: a `HostConfig` with the
errors that were found, and credentials. Imports no other package of the provisioner.
"""
