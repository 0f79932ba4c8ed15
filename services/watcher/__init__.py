"""The watcher of one cluster publishes every object that the API server shows.

In: lists and watches of the configured kinds, and of the kinds that Integration objects describe.
Inside: a comparison with what is on the log already, so that only changes are published.
Out: `Observed` for each change and each deletion, and `Synced` after all kinds were listed.
"""
