"""Users on hosts: made before a TaskRun builds, removed afterwards, and maintained in between.

Enters: the state of a slot. Leaves: commands over SSH, private keys for delivery, and reports for the next
round of allocation. `port.Hosts` is the interface, kept by `ssh.SshHosts` and `fake.FakeHosts`.
"""
