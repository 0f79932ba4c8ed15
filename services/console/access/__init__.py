"""Who asks, and what they may see.

In: a bearer token. `reviews` asks the cluster (TokenReview, SubjectAccessReview) and remembers answers for
a short time.
`shares` divides places among users: live streams, simulations.
Out: `authorizer` concludes which namespaces and queues are visible, or raises a `StatusError`.
"""
