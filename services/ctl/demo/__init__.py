"""`sluice demo`: generated work on the system of `sluice dev`, and a judgement of what happened.

In: a seed, a file of PipelineRuns, or a file of cases with expected results.
Inside: `load` generates, `create` submits, `progress` follows the streams, `check` judges from the logs.
Out: a live summary, and a last line that begins with `demo: ok` or `demo: failed`.
"""
