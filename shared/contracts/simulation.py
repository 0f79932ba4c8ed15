"""Names that the simulator knows: annotations that the demo, tests and benchmarks set, and a context."""

from typing import Final

PREFIX: Final = "simulator.sluicegate.dev/"

PATCHER_CONTEXT: Final = "patcher"
"""Context of the simulator's kubeconfig in which a client has the patcher's user name."""

BENCH_CLASS: Final = "sluicegate.dev/bench-class"
"""Label of a benchmark's workload: its size class in Kueue's scalability generator."""

BENCH_RUNS: Final = "sluicegate.dev/bench-runs-milliseconds"
"""Label of a benchmark's workload: its running time."""

DURATION: Final = PREFIX + "duration"
"""Running time in simulated time, such as ``90s``. Without it, a random time."""

OUTCOME: Final = PREFIX + "outcome"
"""With the value ``fail`` the object fails at its end."""

RUN_IN_PODS: Final = PREFIX + "pods"
"""``true`` on a PipelineRun or TaskRun: its tasks run in pods, on nodes. Without it, only tasks that
mount a claim or follow a placeholder have pods; for a queue the others look the same without."""
