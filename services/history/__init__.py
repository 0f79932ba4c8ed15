"""What happened to a workload, in words.

In: the bodies of messages about one workload, in the order of the logs.
Inside: each message becomes a sentence; what repeats the sentence before is left out.
Out: lines for people. `sluice history` and the timeline of the console show the same ones.
"""
