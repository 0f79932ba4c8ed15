"""Sluicegate beside real Kueue managers: on another cluster of MultiKueue, and before and after it on one.

Enters: a folder with kube-apiserver, etcd and kube-controller-manager (KUBEBUILDER_ASSETS), a tree of
Kueue for its manifests (KUEUE) and its manager (KUEUE_MANAGER).
Inside: `clusters` runs API servers with the Job controller, `pods` plays scheduler and kubelet, `manager`
runs Kueue, `sluicegate` runs `sluice dev`, `objects` has what the tests create and read.
Leaves: tests that are skipped, with a sentence, where one of these is not given.
"""
