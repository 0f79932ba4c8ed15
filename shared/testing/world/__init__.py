"""One seed, one world: virtual time, processes that die, and a bus and clusters that misbehave."""
