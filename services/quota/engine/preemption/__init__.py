"""Whom to preempt so that a workload fits: the candidates, and two ways to choose among them."""
