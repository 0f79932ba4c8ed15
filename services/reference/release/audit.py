"""`make audit`: asks OSV whether a locked package has a known vulnerability (https://google.github.io/osv.dev/).

Without an answer nothing is known: that is said, and is no failure, unless `--strict` is given.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final

from services.reference.release.locked import Package, runtime_packages

OSV: Final = "https://api.osv.dev/v1/querybatch"
TIMEOUT_SECONDS: Final = 30.0
FOUND, UNKNOWN = 1, 2


class _NoAnswerError(Exception):
    """OSV did not answer, or not in its form."""


def _vulnerabilities(packages: Sequence[Package], *, url: str = OSV) -> dict[str, list[str]]:
    """Return the ids of known vulnerabilities by package that has any. Raises `_NoAnswerError`."""
    queries = [
        {"package": {"name": one.name, "ecosystem": "PyPI"}, "version": one.version}
        for one in packages
    ]
    answers = _ask(url, {"queries": queries}).get("results")
    if not isinstance(answers, list) or len(answers) != len(packages):
        raise _NoAnswerError(f"{url}: must answer each of {len(packages)} queries")
    found = {
        f"{package.name} {package.version}": sorted(str(one["id"]) for one in answer["vulns"])
        for package, answer in zip(packages, answers, strict=True)
        if answer.get("vulns")
    }
    return dict(sorted(found.items()))


def _ask(url: str, question: dict[str, Any]) -> dict[str, Any]:
    if not url.startswith(("https://", "http://")):
        raise _NoAnswerError(f"{url}: is no address")
    request = urllib.request.Request(  # noqa: S310 - checked above
        url, data=json.dumps(question).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            found: Any = json.load(answer)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise _NoAnswerError(f"{url}: {error}") from error
    if not isinstance(found, dict):
        raise _NoAnswerError(f"{url}: must answer with an object")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is found. Returns 1 for a vulnerability, 2 with `--strict` if OSV does not answer."""
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__)
    parser.add_argument("--url", default=OSV)
    parser.add_argument("--strict", action="store_true", help="fail without an answer")
    given = parser.parse_args(arguments)
    packages = [package for package in runtime_packages() if package.hashes]
    try:
        found = _vulnerabilities(packages, url=given.url)
    except _NoAnswerError as error:
        sys.stdout.write(f"not audited, nothing is known: {error}\n")
        return UNKNOWN if given.strict else 0
    for package, ids in found.items():
        sys.stdout.write(f"{package}: {', '.join(ids)}\n")
    sys.stdout.write(f"{len(packages)} packages, {len(found)} with known vulnerabilities\n")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
