"""`sluice get`: what the streams say, as a table or as objects, without any access to Kubernetes.

In: the views of the streams, folded into a `Snapshot`. `resources` says for each kind what is read and
which columns it has.
Out: tables, JSON, YAML or names, once or as they change. Other commands use `read`, `Snapshot` and
`Table`.
"""
