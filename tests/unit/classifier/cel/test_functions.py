"""An expression with its functions inlined returns what it returns when they are really called.

The functions written in Python, which production avoids because each call leaks, are the oracle.
"""

from typing import Any

from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from services.classifier.cel.functions import (
    MARK,
    SIGNATURES,
    VARIABLES,
    checking_environment,
    evaluating_environment,
    inline_functions,
)
from shared.cel import syntax
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, REQUESTS_PREFIX

CHECKING, EVALUATING = checking_environment(), evaluating_environment()
DATA: dict[str, Any] = {
    "pipelineRun": {"a": "text", "n": 1.5, "l": ["x", "y"], "m": {"k": "v"}},
    "plrNamespace": "ns",
    "pacEventType": "push",
    "pacTestEventType": "",
}


def _returned(kind: str, key: str, value: str) -> dict[str, str]:
    return {"type": kind, "key": key, "value": value}


IMPLEMENTATIONS = {
    "label": lambda k, v: _returned("label", k, v),
    "annotation": lambda k, v: _returned("annotation", k, v),
    "priority": lambda v: _returned("label", PRIORITY_CLASS_LABEL, v),
    "resource": lambda k, n: _returned("resource", REQUESTS_PREFIX + k, str(n)),
    "replace": lambda s, old, new: s.replace(old, new),
    "managedBy": lambda v: _returned("managedBy", "managedBy", v),
    "multiKueue": lambda v="": _returned("multiKueue", "managedBy", v),
}
CALLING = cel.NewEnv(
    variables=VARIABLES,
    functions=[
        cel.FunctionDecl(
            name,
            [
                cel.Overload(f"{name}_{index}", result, list(types), False, IMPLEMENTATIONS[name])
                for index, types in enumerate(overloads)
            ],
        )
        for name, (overloads, result) in SIGNATURES.items()
    ],
)

# Text that would mislead whoever rewrote the text instead of the tree.
NASTY = st.sampled_from(
    ["", "a", "//", "label(", ")", '"', "'", "\\", ",", 'replace("a","b","c")', "\n", "é𝄞"]
)


def _quoted(text: str, style: int) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\'").replace("\n", "\\n")
    )
    raw = not set(text) & {"\\", '"', "'", "\n"}
    forms = [f'"{escaped}"', f"'{escaped}'", f'"""{escaped}"""', f"'''{escaped}'''"]
    return f"r'{text}'" if raw and style == 4 else forms[style % 4]


literals = st.builds(_quoted, st.lists(NASTY, max_size=3).map("".join), st.integers(0, 4))
spaces = st.sampled_from(["", " ", "\n", ' // a "comment" label(\n', "\t"])
leaves = st.one_of(
    literals,
    st.sampled_from(["plrNamespace", "pacEventType", "pipelineRun.a", "pipelineRun.m.k"]),
    st.sampled_from(["dyn(1)", "pipelineRun.n", "pipelineRun.nope", "pipelineRun.l"]),
)


def _call(name: str, gap: str, *arguments: str) -> str:
    return f"{name}{gap}({gap}{f'{gap},{gap}'.join(arguments)}{gap})"


texts = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(_call, st.just("replace"), spaces, inner, inner, inner),
        st.builds(lambda a, b: f"({a} + {b})", inner, inner),
        st.builds(lambda a, b: f'(pacEventType == "push" ? {a} : {b})', inner, inner),
        st.builds(lambda a: f"string({a})", inner),
    ),
    max_leaves=6,
)
amounts = st.one_of(
    st.integers(-(2**63) + 1, 2**63 - 1).map(str),
    st.sampled_from(["dyn(3)", "dyn(1.5)", "size(pipelineRun.l)", "pipelineRun.n", "1 + 2"]),
)
mutations = st.one_of(
    st.builds(_call, st.sampled_from(["label", "annotation"]), spaces, texts, texts),
    st.builds(_call, st.sampled_from(["priority", "managedBy", "multiKueue"]), spaces, texts),
    st.builds(_call, st.just("multiKueue"), spaces),
    st.builds(_call, st.just("resource"), spaces, texts, amounts),
)
expressions = st.one_of(
    mutations,
    st.lists(mutations, min_size=1, max_size=3).map(lambda items: f"[{', '.join(items)},]"),
    st.builds(lambda m: f'["p", "q"].map(label, {m})', mutations),
    st.builds(lambda m: f"[{m}].map(m, annotation(m.key, m.value))", mutations),
    st.builds(lambda m, t: f"[{m}].exists(m, m.value == {t}) ? [{m}] : []", mutations, texts),
)


def run(program: Any) -> Any:
    """The value, or only that it fails: the wording is tested elsewhere."""
    result = program.eval(EVALUATING.Activation(DATA))
    return "error" if result.type() == cel.Type.ERROR else plain(result.plain_value())


def plain(value: Any) -> Any:
    match value:
        case list():
            return [plain(item) for item in value]
        case dict():
            return {key: item for key, item in value.items() if key != MARK}
        case _:
            return value


@settings(max_examples=300)
@given(expressions)
def test_inlined_functions_return_the_same_as_called(expression: str) -> None:
    try:
        original = CHECKING.compile(expression)
    except RuntimeError:
        return  # refused before anything is inlined, see test_compile

    tree = syntax.parse(original.serialize())
    inline_functions(tree)
    inlined = EVALUATING.deserialize(syntax.serialize(tree))

    assert run(inlined) == run(CALLING.compile(expression))


def test_syntax_tree_survives_parse_and_serialize() -> None:
    serialized = EVALUATING.compile('[0, 1 - 1, size("")].map(x, x == 0 && !false)').serialize()

    again = EVALUATING.deserialize(syntax.serialize(syntax.parse(serialized)))

    assert run(again) == [True, True, True]
