"""A whole cluster in a process: API server, Tekton and Job behaviour, clouds."""
