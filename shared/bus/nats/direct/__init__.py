"""Reading for users that may make no consumer: list, watch and replay by direct reads.

In comes what a log publishes below `live.` once it has stored something, as a hint to look; entries come
from direct reads only, in the order of the stream, and each of them once.
"""
