"""One Kubernetes cluster, as services use it.

`port` is the protocol, `client` its adapter over HTTP. Kubeconfig or service account come in; objects,
watches and errors by what the caller can do about them come out. `reflector` lists and watches a kind.
"""
