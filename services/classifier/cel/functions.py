"""The functions of expressions: those that return mutations, and `replace`.

An expression is type checked against declared functions. Before the evaluation, each call in its syntax
tree is replaced by the plain CEL value that the function returns: the library (0.1.3) leaks memory on
every call of a Python function, and holds the interpreter lock for it. A map literal does neither.

Names, signatures and returned maps are those of tekton-kueue's configuration
(tektoncd/tekton-kueue@67c7712 internal/cel/compiler.go).
"""

from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from shared.cel.syntax import Expr, children
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, REQUESTS_PREFIX

MARK: Final = "\x00sluicegate"
"""A key of the maps that our functions return, with the function's name. It tells them from other maps."""

ELSEWHERE: Final = "multiKueue()"
"""Value of `MARK` of the one function that may be called without an argument, if it is."""

MANAGED_BY: Final = "managedBy"
"""The key of the maps that say who runs the object."""

_STRING, _INT = cel.Type.STRING, cel.Type.INT
_OBJECT = cel.Type.Map(_STRING, cel.Type.DYN)

VARIABLES: Final = {
    "pipelineRun": _OBJECT,
    "plrNamespace": _STRING,
    "pacEventType": _STRING,
    "pacTestEventType": _STRING,
}
SIGNATURES: Final = {
    "annotation": (((_STRING, _STRING),), _OBJECT),
    "label": (((_STRING, _STRING),), _OBJECT),
    "managedBy": (((_STRING,),), _OBJECT),
    "multiKueue": (((), (_STRING,)), _OBJECT),
    "priority": (((_STRING,),), _OBJECT),
    "resource": (((_STRING, _INT),), _OBJECT),
    "replace": (((_STRING, _STRING, _STRING),), _STRING),
}
"""The parameters of each overload of a function, and what it returns."""


def _never_called(*_arguments: object) -> None:
    raise AssertionError("checked expressions are not evaluated before functions are inlined")


def checking_environment() -> Any:
    """Return the environment that parses and type checks expressions."""
    functions = [
        cel.FunctionDecl(
            name,
            [
                cel.Overload(f"{name}_{index}", result, list(parameters), False, _never_called)
                for index, parameters in enumerate(overloads)
            ],
        )
        for name, (overloads, result) in SIGNATURES.items()
    ]
    return cel.NewEnv(variables=VARIABLES, functions=functions)


def evaluating_environment() -> Any:
    """Return the environment that evaluates rewritten expressions. It declares none of our functions."""
    return cel.NewEnv(variables=VARIABLES, extensions=[ext_strings.ExtStrings()])


def inline_functions(checked: Any) -> None:
    """Replace each call of our functions by the value that it returns, in place."""
    _Inliner(checked).inline(checked.expr)


class _Inliner:
    """Rewrites one syntax tree: assigns new node ids and removes stale references."""

    def __init__(self, checked: Any) -> None:
        self._references = checked.reference_map
        # Every node has a position, so this is the highest id in use.
        self._last_id = max((entry.key for entry in checked.source_info.positions), default=0)

    def inline(self, expr: Any) -> None:
        for child in children(expr):
            self.inline(child)
        if not expr.HasField("call_expr") or expr.call_expr.HasField("target"):
            return
        # A leading dot (`.label(…)`) means the global name; our functions are all global.
        name = expr.call_expr.function.removeprefix(".")
        if name not in SIGNATURES:
            return
        self._forget(expr.id)
        arguments = list(expr.call_expr.args)
        if name == "replace":
            expr.call_expr.CopyFrom(self._method("replace", arguments))
            return
        returned = self._returned(name, arguments)
        expr.ClearField("call_expr")
        for key, value in returned.items():
            entry = expr.struct_expr.entries.add(id=self._new_id())
            entry.map_key.CopyFrom(self._text(key))
            entry.value.CopyFrom(value)

    def _returned(self, name: str, arguments: list[Any]) -> dict[str, Any]:
        """Return the map that a function returns. Adding "" or 0 fails for a value of another type."""
        match name:
            case "priority":
                kind, key, value = "label", self._text(PRIORITY_CLASS_LABEL), arguments[0]
            case "resource":
                kind = "resource"
                key = self._sum(self._text(REQUESTS_PREFIX), arguments[0])
                value = self._call("string", [self._sum(arguments[1], self._int(0))])
            case "managedBy" | "multiKueue":
                kind, key = name, self._text(MANAGED_BY)
                value = arguments[0] if arguments else self._text("")
            case _:
                kind, key, value = name, self._sum(arguments[0], self._text("")), arguments[1]
        if name != "resource":
            value = self._sum(value, self._text(""))
        mark = name if arguments else ELSEWHERE
        return {"type": self._text(kind), "key": key, "value": value, MARK: self._text(mark)}

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _forget(self, node: int) -> None:
        """Remove the checker's choice of overload, because the node does not call that function now."""
        for index, entry in enumerate(self._references):
            if entry.key == node:
                del self._references[index]
                return

    def _text(self, value: str) -> Any:
        return Expr(id=self._new_id(), const_expr={"string_value": value})

    def _int(self, value: int) -> Any:
        return Expr(id=self._new_id(), const_expr={"int64_value": value})

    def _call(self, function: str, arguments: list[Any]) -> Any:
        return Expr(id=self._new_id(), call_expr={"function": function, "args": arguments})

    def _sum(self, left: Any, right: Any) -> Any:
        return self._call("_+_", [left, right])

    def _method(self, function: str, arguments: list[Any]) -> Any:
        target, *rest = arguments
        return Expr(call_expr={"target": target, "function": function, "args": rest}).call_expr
