"""The pure engine: who is admitted, preempted and told what, from facts alone."""
