"""The page and the API for people and programs that ask who waits, and why.

In: the streams, read only while somebody asks; and questions with a bearer token, over HTTP or NATS.
Inside: `view` keeps a replica of quota's state, `query_service` answers for one user, `access/` asks the
cluster what the user may see.
Out: documents (`documents`), server-sent events, and the page. Nothing is decided or written.
"""
