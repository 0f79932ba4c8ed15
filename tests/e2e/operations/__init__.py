"""What an operator does to a real API server that has work: upgrade, restore, uninstall (docs/how-to).

Enters: KUBEBUILDER_ASSETS with a kube-controller-manager, or Docker. Each test has a server of its own, on
which the Job controller makes pods; `PodRunner` plays the kubelet.
"""
