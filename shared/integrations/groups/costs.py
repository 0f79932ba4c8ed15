"""Whether an object of a group asks for more than one of its role was admitted with. Pure.

A role is a name that a user writes, and a hash does not say how much. So each object is compared by itself.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from shared.contracts.kube.bodies import map_at
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.pod_requests import requested_by
from shared.contracts.kube.quantities import QuantityError, format_quantity
from shared.integrations.groups.group import Group
from shared.integrations.shape import asked_by, claims_of

Variant = tuple[str, str]
"""Role, and digest of what objects ask for."""


def beyond(spec: Object, admitted: Object) -> str:
    """Return what a pod spec asks for beyond the admitted one, in words; empty if nothing."""
    if asked_by(spec) == asked_by(admitted):
        return ""
    try:
        return ", ".join(_more(spec, admitted))
    except QuantityError as error:
        return f"an amount that cannot be read ({error})"


def too_large(group: Group, templates: Mapping[str, Object]) -> dict[Variant, str]:
    """Return what objects ask for beyond their role, in words. `templates`: by role, as admitted."""
    found: dict[Variant, str] = {}
    for name, admitted in templates.items():
        role = group.roles.get(name)
        for asks, variant in ({} if role is None else role.variants).items():
            if variant.template is None:
                continue  # Its release says what cannot be read.
            more = beyond(map_at(variant.template, "spec"), map_at(admitted, "spec"))
            if more and variant.count > 0:
                found[name, asks] = more
    return found


def _more(spec: Object, admitted: Object) -> Iterator[str]:
    given = requested_by(admitted)
    for resource, value in requested_by(spec).items():
        if value > (most := given.get(resource, 0)):
            yield f"{format_quantity(value)} {resource}, admitted {format_quantity(most)}"
    for template, number in sorted(
        (Counter(claims_of(spec)) - Counter(claims_of(admitted))).items()
    ):
        what = f"of template {template}" if template else "by name"
        yield f"{number} more resource claims {what}"
