"""Objects that are one workload together: a kind whose document has `spec.group`.

Objects of such a kind enter, one by one, as they come, change and go. Out comes each group in the form of an
object of that kind, with an Integration that reads it: whoever deals with jobs deals with groups by that.
"""

from shared.integrations.groups.costs import Variant, beyond, too_large
from shared.integrations.groups.group import Group
from shared.integrations.groups.grouped import GroupedIntegration, group_in, grouped
from shared.integrations.groups.index import Groups
from shared.integrations.groups.member import Member, group_of, member_of

__all__ = [
    "Group",
    "GroupedIntegration",
    "Groups",
    "Member",
    "Variant",
    "beyond",
    "group_in",
    "group_of",
    "grouped",
    "member_of",
    "too_large",
]
