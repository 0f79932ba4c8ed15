"""PipelineRuns as Tekton Pipelines 1.11 sees them, before Tekton's own webhook runs.

What enters: a PipelineRun as its author wrote it.
What leaves: a defaulted copy for the expressions, or an error with all that Tekton would refuse.
"""
