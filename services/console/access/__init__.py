"""Who asks, and what they may see.

In: a bearer token. `users` asks the cluster (TokenReview, SubjectAccessReview) and remembers answers for
a short time.
Out: `rights` concludes which namespaces and queues are visible, or raises a `Refusal`.
"""
