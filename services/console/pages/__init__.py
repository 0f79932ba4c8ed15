"""What single pages ask for beside rows: how a workload came here, spokes, machines, and the recent past.

Nothing of it is kept while nobody looks: each answer is read from the views and logs when a page asks for
it, for what the user may see, and leaves as a document of `services.console.documents`.
"""
