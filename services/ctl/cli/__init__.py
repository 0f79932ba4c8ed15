"""The Typer layer: commands with their options, help texts and completion.

In: the words of a command line. Nothing here reads a stream or a cluster; each command imports what
does, when it runs.
Out: a call of one function in `get/`, `inspect/`, `doctor/`, `admin/`, `setup/`, and its exit status.
"""
