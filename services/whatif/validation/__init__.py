"""What is wrong with a change.

In: a manifest, or the two futures of a change.
Inside: the webhook's rules, the schemas' fields, the names that nobody has.
Out: `CommandError` for what an API server refuses, a sentence for what could never start.
"""
