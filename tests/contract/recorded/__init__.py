"""Logs that releases wrote, and worlds that begin on them.

Enters: a file of messages, one a line, as the streams of one moment held them.
Inside: a server in memory and clusters that are as they were then, and the services of the present release.
Leaves: what these hold, decide and lose.
"""
