"""Benchmarks of the whole system and of all benchmarks together.

In: a running machine. `processes` reads from /proc what a tree of processes uses, `rest` measures
`sluice dev` while nothing happens, `whatif` `sluice simulate` on a long day.
Out: tables, and a last line that begins with the benchmark's name.
"""
