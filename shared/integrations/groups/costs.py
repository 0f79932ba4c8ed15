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


Granted = Mapping[str, int]
"""Resource to the billionths that quota counts for one object, where it counts what is asked for."""


def beyond(spec: Object, admitted: Object, granted: Granted | None = None) -> str:
    """Return what a pod spec asks for beyond the admitted one, in words; empty if nothing.

    The admitted template may be newer than the decision: of a pod that took the place of a smaller one.
    """
    if not granted and asked_by(spec) == asked_by(admitted):
        return ""
    try:
        return ", ".join(_more(spec, admitted, granted or {}))
    except QuantityError as error:
        return f"an amount that cannot be read ({error})"


def too_large(
    group: Group,
    templates: Mapping[str, Object],
    granted: Mapping[str, Granted] | None = None,
) -> dict[Variant, str]:
    """Return what objects ask for beyond their role, in words. `templates`: by role, as admitted."""
    found: dict[Variant, str] = {}
    for name, admitted in templates.items():
        role = group.roles.get(name)
        for asks, variant in ({} if role is None else role.variants).items():
            if variant.template is None:
                continue  # Its release says what cannot be read.
            given = (granted or {}).get(name)
            more = beyond(map_at(variant.template, "spec"), map_at(admitted, "spec"), given)
            if more and variant.count > 0:
                found[name, asks] = more
    return found


def _more(spec: Object, admitted: Object, granted: Granted) -> Iterator[str]:
    given = requested_by(admitted)
    for resource, value in requested_by(spec).items():
        most = given.get(resource, 0)
        if value > (most := min(most, granted.get(resource, most))):
            yield f"{format_quantity(value)} {resource}, admitted {format_quantity(most)}"
    for template, number in sorted(
        (Counter(claims_of(spec)) - Counter(claims_of(admitted))).items()
    ):
        what = f"of template {template}" if template else "by name"
        yield f"{number} more resource claims {what}"
