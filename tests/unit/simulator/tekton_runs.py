"""Parts of PipelineRuns for the tests of Tekton."""

PLATFORMS = {"name": "build-platforms", "value": ["linux/arm64", "linux/s390x"]}


THREE = {
    "tasks": [{"name": "a"}, {"name": "b", "runAfter": ["a"]}],
    "finally": [{"name": "f"}],
}
