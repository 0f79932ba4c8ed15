"""Tables of objects, as ``kubectl get`` shows them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from services.simulator.cluster.kinds.jsonpath import find
from services.simulator.cluster.kinds.registry import Column, Kind, Obj

NAME: Final = Column(name="Name", path=".metadata.name")


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": "string" if column.type == "date" else column.type,
        "format": "name" if column is NAME else "",
        "description": "",
        "priority": column.priority,
    }


def _age(text: Any, now: datetime) -> str:
    """Format the time since `text` as kubectl does: at most two units, coarser for longer times."""
    if not isinstance(text, str):
        return "<unknown>"
    try:
        seconds = int((now - datetime.fromisoformat(text)).total_seconds())
    except (ValueError, TypeError):
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if days < 2:
        return f"{hours}h"
    return f"{days}d"


def _cell(column: Column, obj: Obj, now: datetime) -> Any:
    if column.value is not None:
        return column.value(obj)
    value = find(column.path, obj)
    if column.type == "date":
        return _age(value, now) if value is not None else ""
    if value is None:
        return None if column.type in {"integer", "number"} else ""
    if column.type == "string" and not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _shown(obj: Obj, include: str) -> Obj | None:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }


def table(
    kind: Kind, objects: Iterable[Obj], *, now: datetime, metadata: Obj, include: str = ""
) -> dict[str, Any]:
    """Return a ``meta.k8s.io/v1 Table``. `include` is the request's ``includeObject``."""
    columns = (NAME, *kind.columns)
    rows = [
        {
            "cells": [_cell(column, obj, now) for column in columns],
            "object": _shown(obj, include),
        }
        for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": rows,
    }
