"""Benchmarks of the whole system and of all benchmarks together.

In: a running machine. `processes` reads what a tree of processes uses from /proc, `rest` measures `sluice dev`
while nothing happens, `calibration` says how fast this machine is now, and `suite` runs every benchmark.
Out: tables, and a last line that begins with the benchmark's name.
"""
