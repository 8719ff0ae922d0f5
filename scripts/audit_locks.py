"""Ask the public database of vulnerabilities (OSV) about every locked version. Needs a network; not in CI.

    .venv/bin/python -m scripts.audit_locks

A vulnerability that becomes known tomorrow would make yesterday's commit red. So this runs by hand or on a
schedule, and not for every change. Exit 1: a vulnerability is known. Exit 2: the database did not answer.
"""

import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from scripts.bill_of_materials import package_url
from scripts.locks import DEVELOPMENT, Entry, entries

DATABASE = "https://api.osv.dev/v1/querybatch"
ANSWER_SECONDS = 60


def question(lock: Mapping[str, Entry]) -> bytes:
    """Return one query about all packages of a lock, in order."""
    urls = [package_url(entry.name, entry.version) for entry in lock.values()]
    return json.dumps({"queries": [{"package": {"purl": url}} for url in urls]}).encode()


def holes(lock: Mapping[str, Entry], answer: Mapping[str, Any]) -> list[str]:
    """Return a line for each package with known vulnerabilities.

    Raises ValueError if the answer is about fewer packages.
    """
    results: Sequence[Mapping[str, Any]] = answer["results"]
    pairs = zip(lock.values(), results, strict=True)
    found = {entry: [hole["id"] for hole in result.get("vulns", [])] for entry, result in pairs}
    return [f"{entry.name} {entry.version}: {', '.join(ids)}" for entry, ids in found.items() if ids]


def main(address: str = DATABASE) -> int:
    """Send the query and print the answer; return the exit status."""
    lock = entries(DEVELOPMENT.read_text(encoding="utf-8"))
    request = urllib.request.Request(address, question(lock), {"Content-Type": "application/json"})  # noqa: S310 - a fixed address
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:  # noqa: S310 - likewise
            known = holes(lock, json.load(reply))
    except (OSError, ValueError, KeyError) as error:
        print(f"audit_locks: no usable answer from {address}: {error}", file=sys.stderr)
        return 2
    print("\n".join(known) or f"audit: no known hole in {len(lock)} locked packages")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
