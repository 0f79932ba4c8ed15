"""`sluice dev`: the whole system as processes on this machine.

In: `DevOptions`. `app` starts nats-server, a simulated cluster, all services and spokes; `supervisor`
keeps the processes running.
Out: a running system, its whereabouts in `.sluice/state.json`, and logs. Nothing is left running at the
end.
"""
