"""Settings: environment variables of a process, and Kueue's Configuration document.

Variables and files come in and are validated before anything starts; frozen settings come out. A value
that is wrong is named with its variable, the value and the rule. `ports` reserves the ports that children are
told to listen at.
"""
