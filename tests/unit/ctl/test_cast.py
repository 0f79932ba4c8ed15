"""The picture of the demo holds what the demo printed."""

import json
from xml.etree import ElementTree as ET

from tests.integration.page.cast import COLUMNS, ROWS, Line, cast, svg

LINES = [
    Line(0.0, "$ sluice demo"),
    Line(0.5, "a < b & c"),
    Line(0.5, ""),
    *(Line(9.0 + number, f"line {number}") for number in range(ROWS)),
    Line(99.0, "x" * (COLUMNS + 5)),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_picture_is_whole_and_ends_with_the_last_line_in_sight() -> None:
    picture = ET.fromstring(svg(LINES))
    texts = [each.text or "" for each in picture.iter(f"{SVG}text")]
    assert texts == [line.text[:COLUMNS] for line in LINES]
    [style] = [each.text or "" for each in picture.iter(f"{SVG}style")]
    assert f"translateY(-{17 * (len(LINES) - ROWS)}px)" in style
    assert not list(picture.iter(f"{SVG}script"))


def test_cast_has_each_line_at_its_time() -> None:
    head, *events = [json.loads(each) for each in cast(LINES).splitlines()]
    assert (head["version"], head["width"]) == (2, COLUMNS)
    assert [(at, text) for at, _, text in events] == [(one.at, f"{one.text}\r\n") for one in LINES]
