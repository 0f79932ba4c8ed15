"""Where a string has two homes all the same, with the reason."""

from collections.abc import Mapping
from typing import Final

COMPARED_BY_TESTS: Final = {
    "services/quota/engine/reasons.py": "the engine imports nothing of ours: test_shared_reasons.py",
}
"""Files that spell what contracts spell, with the reason and the test that compares both."""

LABELS_OF_OTHERS: Final = {
    "services/simulator/behaviour": "plays controllers and nodes, which set labels of their own",
    "services/simulator/cluster": "plays the API server",
    "services/simulator/http": "plays the API server",
    "services/simulator/scenarios/kinds/load.py": "a group and a plural, no label",
    "services/ctl/demo/load.py": "labels as Konflux sets them; nobody reads them here",
    "shared/settings/frameworks.py": "Kueue's names of kinds, no labels",
    "shared/integrations/registry.py": "Kueue's names of kinds, no labels",
    "shared/cel/syntax.py": "the URL of a type in CEL's own format",
}
"""Files and folders that may spell a label which is neither Kueue's, Tekton's nor ours."""

WORDS_OF_OTHERS: Final[Mapping[str, frozenset[str]]] = {
    "Kubernetes' reason for each HTTP status": frozenset(
        {
            "AlreadyExists",
            "BadRequest",
            "InternalError",
            "RequestEntityTooLarge",
            "ServiceUnavailable",
            "TooManyRequests",
        }
    ),
    "values and fields of Kubernetes' API, its groups and its namespace": frozenset(
        {
            "NoExecute",
            "NoSchedule",
            "ephemeral-storage",
            "kube-system",
            "rbac.authorization.k8s.io",
            "x-kubernetes-preserve-unknown-fields",
        }
    ),
    "fields of a kubeconfig": frozenset({"certificate-authority-data", "current-context"}),
    "HTTP, ASGI, TLS and IP": frozenset(
        {
            "127.0.0.1",
            "ca.crt",
            "content-length",
            "http.response.body",
            "http.response.start",
            "latin-1",
        }
    ),
    "a program, and the usual name of a file of its": frozenset({"nats-server", "server.conf"}),
    "reasons of events of a job, which say what was done to it": frozenset(
        {"Stopped", "Suspended"}
    ),
    "of a spoke that speaks another version, and of an Integration: two facts": frozenset(
        {"SchemaMismatch"}
    ),
    "a label of AppWrapper's operator, and Kueue's name of the kind: two facts": frozenset(
        {"workload.codeflare.dev/appwrapper"}
    ),
}
"""Words that several of us spell, by where they come from: nobody here could change one of them."""
