"""A Kubernetes cluster in one process, for tests, `sluice dev` and `sluice demo`.

Inside: an API server without etcd (`cluster`, `http`), the controllers that act on its objects
(`behaviour`), seeded worlds in which all services run (`scenarios`), checks of what the services
wrote to the streams (`judge`), and benchmarks (`bench`).
Enters: API requests, over HTTP or in process (`local`), and manifests (`manifests`).
Leaves: objects and watch events, as a real API server gives them; from a scenario, a verdict.
"""
