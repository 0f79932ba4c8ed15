"""What a change would do, played on a copy of the state.

In: messages of the streams or a folder of manifests, and a change: objects applied or removed, a spoke
lost.
Inside: classifier code turns new jobs into workload states, dispatcher code says to which spokes a queue
leads, and the quota engine plays both futures (`services.quota.forecast`). Nothing is published or
written.
Out: for each LocalQueue the admissions, preemptions and waits before and after (`report`), and the
expected start of a workload (`expected_start`). The console and the `sluice` command are its two users.
"""
