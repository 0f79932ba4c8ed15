"""What every service keeps in memory while days pass: `make bench-days`.

Enters: how many days, and how many workloads each. Inside: `days` plays them in a world and draws a line
through the midnights, `beside` runs what no other world has, `kept` counts bytes. Leaves: a line for each
day, and the slope of each service. It stands here because it needs the console, which the simulator may not.
"""
