"""The programs of Sluicegate, one package each.

A service reads messages and Kubernetes objects, decides, and publishes messages or writes objects.
Services agree through `shared.contracts` only. `console`, `ctl`, `history`, `reference`, `simulator` and
`whatif` are tools and also import the services that they show or run.
"""
