"""Takes one safety mechanism out at a time, and plays worlds until a safety check notices.

Enters: the table of mutants (`table`), each with the ADR that speaks of it and the scenarios that try it.
Inside: `plant` patches one attribute, `runner` plays seeds and compares with the same seed unpatched,
`results` keeps what was found for each commit, so that a run can be resumed.
Leaves: which mechanism was missed; the last line is `mutants: N of N found`.
"""
