"""The console over HTTP: Kueue's visibility API, our own API, server-sent events and the page.

In: requests. `handlers` maps each path to one question of `QueryService`; `openapi` describes the same
paths.
Out: JSON, events, or a `metav1.Status` where there is no answer.
"""
