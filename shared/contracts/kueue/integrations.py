"""`sluicegate.dev/v1alpha1 Integration`: how a kind that can wait is read, held and let go.

`docs/reference/integration.md` and the CustomResourceDefinition are made from these models.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints, WithJsonSchema

from shared.contracts.kueue.fields import Conditions, DnsLabel, Metadata
from shared.contracts.kueue.schema import ApiModel, Extra, listed

EXPRESSION_CHARS_MAX: Final = 4096
"""An expression is compiled where a webhook or a projection reads its document."""

Expression = Annotated[str, StringConstraints(min_length=1, max_length=EXPRESSION_CHARS_MAX)]
"""An expression of the Common Expression Language."""

FieldPath = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][-A-Za-z0-9_]*(\.[-A-Za-z0-9_]+)*$", max_length=256),
]
"""Where in the object something is, the names with dots between them: `spec.template`."""

_AnyValue = Annotated[
    Any, WithJsonSchema({"x-kubernetes-preserve-unknown-fields": True}), Extra({})
]


class _Strict(ApiModel):
    """A part whose misspelt fields are refused, since each absent one has a default."""

    model_config = ConfigDict(extra="forbid")


class IntegratedKind(_Strict):
    """A namespaced kind that the cluster serves."""

    group: Annotated[str, StringConstraints(max_length=253)]
    """Its API group; empty for the core group."""

    version: Annotated[DnsLabel, StringConstraints(min_length=1)]
    """The version that is watched and written."""

    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=63)]
    """`kind` in a manifest."""

    plural: Annotated[DnsLabel, StringConstraints(min_length=1)]
    """The resource's name in URLs and roles."""


class ChildKind(_Strict):
    """A kind of job that the controller of another one makes."""

    group: Annotated[str, StringConstraints(max_length=253)]
    """Its API group."""

    kind: Annotated[str, StringConstraints(pattern=r"^([A-Z][A-Za-z0-9]*|[*])$", max_length=63)]
    """`kind` in a manifest; `*` with the group `*`: every kind that can wait, and pods."""

    pod_sets: Annotated[list[str], Field(max_length=18), listed("atomic")] | None = None
    """Names of the pod sets that jobs of this kind run, where pods of the others are made without a job: none
    of their quota is for a job. Empty: such a job has no quota of its controller. If absent, for one of the
    kinds: all."""


class PatchOperation(_Strict):
    """One operation of a JSON patch (RFC 6902)."""

    op: Literal["add", "remove", "replace", "test"]
    """What is done. Where a `test` fails, the API server refuses the whole patch."""

    path: Annotated[str, StringConstraints(pattern=r"^(/[^/]*)+$", max_length=512)]
    """A JSON pointer: `/spec/suspend`; within a name `~1` stands for a slash."""

    value: _AnyValue = None
    """What is written or expected, as it is."""

    value_from: Expression | None = None
    """Or an expression that says it."""

    when: Expression | None = None
    """Only if this holds of the object; absent for always."""


class EqualCount(_Strict):
    """A field that is to have the same value as `countField`."""

    field: FieldPath
    """Where it is. With `forEach` it may begin with `item.`."""

    when: Expression | None = None
    """Only if this holds of the object; absent for always."""


_Field = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][-A-Za-z0-9_]*$", max_length=63)]
"""The name of one field."""


class DeclaredPods(_Strict):
    """Where pod templates of a wrapped object are said to be, and how many pods each has."""

    list: FieldPath
    """The list, which begins with `item.`."""

    path: _Field
    """Which field of an entry is the path of a template: `template.spec.jobs[0].template`. It begins where
    the wrapped object does. A path that leads to no template is refused with path and cause."""

    replicas: _Field
    """Which field of an entry is the number of pods. 1 where it is absent."""


class WrappedSpec(_Strict):
    """An object inside each item of `forEach`, whose pods are the object's own.

    They are those that the Integration of its kind reads: of a kind that ships, or has one. Such an object
    waits and runs with the one that wraps it (`children`).
    """

    object: FieldPath
    """Where it is; begins with `item.`."""

    declared: DeclaredPods | None = None
    """Its pods for a kind without an Integration. Of another kind these come first, and have at least the
    pods that its Integration reads."""

    placements: FieldPath | None = None
    """A list that gets at release, for each declared pod set (or else for each that is read), what flavors
    choose: a map with `labels`, `annotations`, `nodeSelector` and `tolerations`. It is removed when a stopped
    one waits again."""


class PodSetSpec(_Strict):
    """Pods that are alike, as `spec.podSets` of a Workload has them; or one such set for each item."""

    for_each: FieldPath | None = None
    """A list or a map in the object: one pod set for each of its items. Expressions of this pod set
    then know `item`, and `key`: its name in the map, or its place in the list. An item that is null is
    as good as absent."""

    order: Annotated[list[str], Field(max_length=18), listed("atomic")] | None = None
    """With `forEach` of a map: the keys in the order of their pod sets. Others follow, as they come.
    Absent: as they come."""

    when: Expression | None = None
    """Only if this holds of the object, or of the item; absent for always."""

    name: Annotated[DnsLabel, StringConstraints(min_length=1)] | None = None
    """What the pod set is called. `main` if absent."""

    name_from: Expression | None = None
    """With `forEach`: what it is called. `item.name` of a list and `key` of a map, if absent. With `wrapped`:
    how the names of all of them begin; a hyphen and their numbers follow."""

    wrapped: WrappedSpec | None = None
    """With `forEach`: each item has an object inside, whose pods these are. Instead of a template."""

    template: FieldPath | None = None
    """Where the pod template is (what has `metadata` and `spec`); with `forEach` it may begin with
    `item.`, and `object` is the object itself, which is a pod. Here the node labels and tolerations of
    flavors go at release, in the same write. Absent for a kind without one: then `requests` says what it
    asks for, and flavors choose quota but no nodes."""

    template_from: Expression | None = None
    """The pod template as a map, for a kind whose controller makes it of other fields, or of which the
    object may leave it out: `template` goes first where the object has it. Not with `forEach`."""

    placement: FieldPath | None = None
    """What has `labels`, `annotations`, `nodeSelector` and `tolerations` of the pods, where the pod
    template is not the place: there the node labels and tolerations of flavors go at release."""

    added_requests: dict[str, Expression] | None = None
    """What each pod asks for beyond its template, by resource: containers that the controller adds. Zero is
    nothing."""

    count: Expression | None = None
    """How many pods run at once. 1 if absent."""

    count_field: FieldPath | None = None
    """Where fewer pods than asked for are written when only so many are admitted. Only if `minCount` says
    that it can start with fewer: pods that have finished are no reason to run fewer."""

    equal_count: EqualCount | None = None
    """Another field that gets the number of pods together with `countField`."""

    min_count: Expression | None = None
    """The fewest pods that it can start with (partial admission); absent or null: all of them. A text
    of digits will do, since annotations are texts."""

    reclaimable: Expression | None = None
    """How many of the pods have finished and will not run again: their quota goes back."""

    running: Expression | None = None
    """How many of the pods run, by the status. More than have quota are stopped."""

    ending: Expression | None = None
    """How many of the pods were told to end and still run, by the status. They hold quota with those that
    run, also beyond what was admitted."""

    requests: dict[str, Expression] | None = None
    """What one pod asks for, by resource: numbers, or quantities as text. Instead of a template."""

    requests_from_annotations: Annotated[str, StringConstraints(max_length=253)] | None = None
    """Each annotation that begins so asks for its value of the resource that its rest names."""


class GateSpec(_Strict):
    """A scheduling gate: the objects are pods, and wait with it.

    It is put on at creation only, and where it was taken away it never comes back: what is stopped is
    deleted.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """The gate in `spec.schedulingGates` with which an object waits. It goes at release."""

    label: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """A label that gets the value `"true"` with the gate. Only objects that have it are watched."""

    finalizer: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """A finalizer that comes with the gate. It goes when the object has ended or is deleted."""


_Key = Annotated[str, StringConstraints(min_length=1, max_length=316)]
"""The key of a label or an annotation."""


class GroupSpec(_Strict):
    """Objects that are one workload together: each says by a label to which group it belongs.

    An object counts unless it has failed or is deleted. A group waits once as many count as it has in all;
    what is alike in them is a pod set. One that fails is made up for by a new one of the same pod set.
    """

    label: _Key
    """Its value is the name of the object's group, and of the group's Workload. Absent: it is by itself."""

    total: _Key
    """Annotation: how many objects the group has."""

    role: _Key
    """Annotation: the pod set of the object. Written at creation where it is absent: a hash of what decides
    about admission."""

    early: _Key | None = None
    """Annotation, `"true"`: the group waits with its first object, as if all were like that one."""

    serving: _Key | None = None
    """Annotation, `"true"`: the group never ends by itself, and what has finished keeps its quota."""

    retriable: _Key | None = None
    """Annotation, `"false"`: the group has ended with the last of its objects, however they ended."""

    by: _Key | None = None
    """Annotation: the key of a label. The name of the group goes on with the value of that label. It is read
    at creation, and taken away."""


class PodGroupsSpec(_Strict):
    """The pods of an object are groups, as the `group` of Pods says: what that needs goes to their template.

    The groups never end by themselves. Queue, number and shape of the pods stay while there are pods.
    """

    total: Expression
    """How many pods a group has; 0 if it is to have none for now."""

    has_pods: Expression
    """Some of its pods are there, or are wanted."""

    each: _Key | None = None
    """Label of the pods by whose value the groups of an object are told apart. Absent: all its pods are one
    group."""

    leader: FieldPath | None = None
    """The template of the first pod of each group, where that has one of its own."""

    early: Expression | None = None
    """A group waits with its first pod, as if all were like that one: they come one after another. Absent:
    once all have come."""


class Refusal(_Strict):
    """An object that cannot be counted or controlled: it is refused at creation, and waits if it is there."""

    when: Expression
    """It is refused if this holds of it."""

    field: FieldPath
    """The field that has to be changed."""

    message: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    """Why, and what to do."""


class FinishSpec(_Strict):
    """When it has ended, and how."""

    success: Expression | None = None
    """It has ended well. If absent: condition Complete, Completed or Succeeded is True."""

    failure: Expression | None = None
    """It has ended otherwise. If absent: condition Failed is True."""

    message: Expression | None = None
    """In words. If absent: the message, or else the reason, of the condition that says that it has
    ended."""

    at: Expression | None = None
    """When, as text in RFC 3339. If absent: the last transition of that condition."""


class StopSpec(_Strict):
    """What taking a running one off the cluster means."""

    how: Literal["Hold", "Patch", "Delete", "Never"] = "Hold"
    """`Hold`: it is made to wait as before its start, and its pods end. `Patch`: by the patch below.
    `Delete`: it is deleted, and does not come back by itself; always so with a `gate`. `Never`: the kind
    cannot be stopped and started again; it is never preempted."""

    patch: Annotated[list[PatchOperation], listed("atomic")] | None = None
    """For `Patch`."""

    end: Annotated[list[PatchOperation], listed("atomic")] | None = None
    """Ends it for good, so that a copy can be made that waits in its place. Absent: that cannot be."""

    cancel: Annotated[list[PatchOperation], listed("atomic")] | None = None
    """Ends at once what runs without admission; nothing more of it starts. Absent: as `end`."""

    forget: Annotated[list[str], listed("set")] | None = None
    """Prefixes of labels and annotations that say what became of the one that was stopped: its copy
    does not have them."""


class WebhookSpec(_Strict):
    """What is done to an object when it is created. One with a queue is always made to wait."""

    classify: bool = False
    """The rules of the classifier's configuration hold for it: its queue, `multiKueueOverride`, and the
    expressions, which see the object as `pipelineRun`."""

    default_queue: Annotated[DnsLabel, StringConstraints(min_length=1)] | None = None
    """The LocalQueue of those that name none. Absent: what `SLUICE_JOB_DEFAULT_QUEUE` says; where that
    is empty, they are left alone."""

    remember_pause: bool = False
    """One that comes held was paused by its user: it is admitted, and started only by the user."""

    own_controller: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    """What `managedByField` says of its own controller. Given: in a queue that leads to other clusters
    that field is set at creation, so that all of the status comes home, unless it names a third one."""

    managed_by_field: FieldPath | None = None
    """Where it says who runs it. If absent: `spec.managedBy`."""


class TraceSpec(_Strict):
    """How its traces join those of its own controller."""

    annotation: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Annotation in which its controller looks for a span to go on from: JSON, `{"traceparent": …}`. One
    that is there already is gone on from; else it is written at creation."""

    name_label: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Label with the name of what it is a run of: few of them, since spans are named after it."""


class IntegrationSpec(_Strict):
    """All that Sluicegate has to know of a kind. Only `kind` and `podSets` have to be said.

    Expressions see `object`, its `metadata`, `spec` and `status` (empty if absent), and `conditions`:
    those of its status, by type. A field that is null is as good as absent.
    """

    kind: IntegratedKind
    """Which objects."""

    match: Expression | None = None
    """Only those of which this holds; absent for all. Whatever this says: what the controller of another
    one makes (`children`) waits and runs with that one."""

    children: Annotated[list[ChildKind], listed("atomic")] | None = None
    """Kinds of jobs that its controller makes for its pods. They wait with it, and run on its quota as far
    as that goes: what asks for more waits for quota of its own. Absent: its controller makes pods and no
    jobs, so that a job which names it as controller waits by itself. Name Pod (of the group `""`), too, where
    it makes both: otherwise a pod with a queue that names it as controller waits by itself."""

    refuse: Annotated[list[Refusal], Field(max_length=24), listed("atomic")] | None = None
    """Which objects with a queue are refused, since what they run could not be counted or stopped."""

    gate: GateSpec | None = None
    """The objects are held by a scheduling gate instead of a field."""

    group: GroupSpec | None = None
    """Objects may be one workload together. Only with a `gate`."""

    propagate: FieldPath | None = None
    """Its pods wait instead, each by itself or as `podGroups` says: the labels that name its queue and its
    priority go to the pod template at this path, when it is created or changed. It is never watched; of the
    rest, only `match`, `refuse`, `annotate` and `podGroups` are asked."""

    annotate: Annotated[dict[str, str], Field(min_length=1, max_length=10)] | None = None
    """Annotations that its pod templates get with these labels. Only with `propagate`. Where a template has
    the labels already, it stays as it is: a change would make new pods."""

    pod_groups: PodGroupsSpec | None = None
    """Its pods are one workload together, or some of them are. Only with `propagate`."""

    suspend_field: FieldPath | None = None
    """The field that is true while it is to wait. If absent: `spec.suspend`."""

    held: Expression | None = None
    """It does not run because it was told to wait. If absent: its `suspendField` is true."""

    active: Expression | None = None
    """Something of it runs or ends: its quota is in use. If absent: it is not held, has not finished,
    and its controller has written a status."""

    ready: Expression | None = None
    """All its pods are ready or have succeeded. Absent or null: the kind cannot tell."""

    finish: FinishSpec | None = None
    """When it has ended. If absent: by the conditions Complete, Completed, Succeeded and Failed."""

    status_subresource: bool | None = None
    """False: its definition has no status subresource, so that whoever may change an object writes its
    status. That it has ended, or runs no more, is believed once none of its pods runs. If absent: true."""

    pods_outlive_status: bool | None = None
    """True: its status may say that it has ended, or waits again, while pods of it run: its controller does
    not count pods that end slowly, or leaves some. That is believed once none of its pods runs. If absent:
    false."""

    pod_names: FieldPath | None = None
    """Where its status has a map whose keys are names of pods. These are its own, whoever controls them:
    what made them may be gone. Only with `podsOutliveStatus`."""

    priority_class: Expression | None = None
    """The PriorityClass of its pods where another field than the templates says it; null or empty: they
    do."""

    pod_sets: Annotated[list[PodSetSpec], Field(min_length=1, max_length=10), listed("atomic")]
    """What it asks for."""

    hold: Annotated[list[PatchOperation], listed("atomic")] | None = None
    """Makes one wait that has not started. If absent: sets its `suspendField`. That it is still the
    object of that uid is tested always. Maps that are missing on the way to a field are added."""

    release: Annotated[list[PatchOperation], listed("atomic")] | None = None
    """Starts it. If absent: tests that its `suspendField` is true and makes it false. Between its tests and
    the rest goes what the pod templates get. When a stopped one waits again, its templates are given
    back what they were before, after the same tests."""

    stop: StopSpec | None = None
    """If absent: `how: Hold`."""

    carry: Annotated[list[PatchOperation], listed("atomic")] | None = None
    """What is changed in a copy for another cluster; what is to be removed need not be there. If
    absent: its `managedByField` is removed."""

    webhook: WebhookSpec | None = None
    """What is done at creation beyond holding it."""

    trace: TraceSpec | None = None
    """If absent: its trace is Sluicegate's alone."""


class IntegrationStatus(ApiModel):
    """What came of it."""

    conditions: Conditions | None = None
    """`Active` is False while the document is refused; the message names field, line and reason."""

    accepted: _AnyValue = None
    """The last spec that was accepted: it is in force while the present one is refused."""


class Integration(_Strict):
    """A kind that can wait, as data."""

    metadata: Metadata
    spec: IntegrationSpec
    """All there is to know of the kind."""

    status: IntegrationStatus | None = None
    """Written by the patcher."""
