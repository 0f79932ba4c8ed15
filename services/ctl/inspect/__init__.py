"""Commands that answer one question about the system and write nothing.

In: streams, or the answer of the quota service. One module for each command: `explain`, `history`,
`top`, `who-preempted`, `hosts`, `simulate` and `plan` (`whatif`).
Out: text for people, or JSON for programs.
"""
