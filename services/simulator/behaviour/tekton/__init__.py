"""Tekton Pipelines 1.11, as far as a queue can see it.

Enters: PipelineRuns and TaskRuns, and the feature flags that set the coscheduling mode.
Inside: Tekton's webhook (`admission`), the order of tasks (`plan`), its affinity assistants
(`coscheduling`), and the controllers of runs.
Leaves: TaskRuns, pods, claims, and the conditions of all runs.
"""
