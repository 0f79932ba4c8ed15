"""Runs Sluicegate beside programs that none of us wrote: `make test-controllers`.

A real kube-apiserver and kube-controller-manager, Tekton Pipelines and Kueue's manager enter as programs
(`programs.py`). A script plays the only node. Scenarios play whole lives of Jobs and PipelineRuns. What
leaves is one line for each row, judged by the API server's own history (`judge`) and by nothing of ours.
"""
