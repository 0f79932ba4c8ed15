"""What somebody does on the page, and what they look for."""

from pathlib import Path
from typing import Any

from tests.integration.browser import Page

ENTER, TAB = ("Enter", 13), ("Tab", 9)
NAMES = "[...document.querySelectorAll('#rows .name')].map((each) => each.innerText)"
FOCUS = "document.activeElement"

PAGES = (
    "/",
    "/workloads",
    "/workloads/hub/team/first",
    "/workloads/hub/team/away",
    "/clusterqueues/hub/cq",
    "/localqueues/hub/team/main",
    "/cohorts/hub/shared",
    "/flavors/hub/default",
    "/spokes",
    "/spokes/hub/east",
    "/history?span=1h",
    "/machines",
    "/machines/hub/linux%2Farm64",
    "/namespaces",
    "/namespaces/team",
    "/what-if",
    "/nowhere",
)
"""One address for each page, of what the stage holds, and one of a workload that runs on a spoke."""

AXE = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
VIOLATIONS = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.flatMap((each) =>
  each.nodes.map((node) => `${each.id}: ${node.target.join(" ")}: ${node.failureSummary}`)))
"""

FAINT = """
(() => {
  const channels = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, number) => sum + each * [0.2126, 0.7152, 0.0722][number], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = channels(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return light(colour);
    }
    return 1;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    const both = [light(channels(getComputedStyle(element).color)), ground(element)].sort((a, b) => b - a);
    const contrast = (both[0] + 0.05) / (both[1] + 0.05);
    if (contrast < 4.5) found.push([walker.currentNode.data.trim(), contrast]);
  }
  return found;
})()
"""
"""Texts with less contrast than WCAG's AA asks for."""


SHIFTS = """
new Promise((told) => new PerformanceObserver((list) => told(
  list.getEntries().filter((each) => !each.hadRecentInput).reduce((sum, each) => sum + each.value, 0)
)).observe({type: "layout-shift", buffered: true}) || setTimeout(() => told(0), 200))
"""
"""How much of the page has moved since it was opened, as Chromium counts it."""

LIVE = "document.getElementById('connection')?.dataset.state === 'live'"
SHOWN = "!document.body.innerText.match(/reading…|asking…/)"
WHOLE = "!document.body.innerText.match(/reading…|asking…|worked out…/)"


async def sign_in(page: Page, token: str) -> None:
    """The focus is where the token belongs."""
    await page.until(f"{FOCUS}.id === 'token'")
    await page.type(token)
    await page.press(*ENTER)


async def says(page: Page, selector: str, text: str) -> None:
    await page.until(f"document.querySelector({selector!r})?.innerText.includes({text!r})")


async def go(page: Page, path: str) -> None:
    """To another page, as a link does: nothing is loaded anew."""
    await page.value(
        f"document.body.append(Object.assign(document.createElement('a'), {{href: {path!r}, id: 'go'}}));"
        "document.getElementById('go').click(); document.getElementById('go').remove()"
    )
    await page.until(f"location.pathname + location.search === {path!r}")


async def faint(page: Page) -> list[Any]:
    """Faint texts of the page as it is, in light and in dark."""
    found: list[Any] = []
    for scheme in ("light", "dark"):
        wanted = {"name": "prefers-color-scheme", "value": scheme}
        await page.call("Emulation.setEmulatedMedia", features=[wanted])
        found += [[scheme, *each] for each in await page.value(FAINT)]
    return found
