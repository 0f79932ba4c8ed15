"""The `sluice` command, and the programs that start other programs: `dev`, `demo` and `pairs`.

In: a command line and the environment. `main` builds the command from the Typer layer in `cli/`; each
command imports the folder that does its work only when it runs, so that `--help` and completion start
quickly.
Out: text on standard output, errors as sentences on standard error, and an exit status
(`shared.runtime.command.Exit`).
"""
