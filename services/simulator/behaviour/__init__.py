"""The controllers of a cluster: Tekton's, the Job controller, a scheduler with kubelets."""
