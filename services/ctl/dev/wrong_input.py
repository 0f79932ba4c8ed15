"""What `sluice dev` refuses before anything starts: manifests and rules that no cluster of ours would use."""

import os
from collections.abc import Sequence
from pathlib import Path

from services.whatif.manifests import Manifest, load_manifests
from shared.contracts.kueue.definitions import definition_of
from shared.runtime.command import CommandError
from shared.settings.access import VARIABLES


def checked_input(
    manifests: Sequence[Path], rules: Path, *, shipped: Sequence[Path]
) -> list[Manifest]:
    """Read the manifests, and compile the classifier's rules. Raises `CommandError`.

    The webhook is registered once the services run, so that it does not see these manifests. What is
    `shipped` is right: it is not looked at, because the import for that takes a part of the start.
    """
    found = load_manifests(manifests)
    if rules not in shipped:
        from services.ctl.admin.mutate import load_rules  # noqa: PLC0415

        load_rules(rules)
    if any(path not in shipped for path in manifests):
        from services.whatif.validation.problems import refuse_invalid  # noqa: PLC0415

        for manifest in found:
            if definition_of(manifest.kind.group, manifest.kind.plural) is not None:
                refuse_invalid(manifest, None)
    return found


def refuse_ca_for_plain_text() -> None:
    """Raise `CommandError` where the shell names a CA, and our own NATS will speak no TLS.

    The services inherit it, and would refuse that server for ever.
    """
    if os.environ.get(VARIABLES["ca"]):
        raise CommandError(
            VARIABLES["ca"],
            "is set, and the NATS that `sluice dev` starts speaks no TLS",
            hint="unset it, or use --secure",
        )
