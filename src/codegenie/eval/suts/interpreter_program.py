"""Says which Python this is and which packages it has, as one JSON document on standard output.

This file is a program; it is run by path, and no module imports it. Any Python 3 can run it, also one that is
too old to run an agent, so that the harness can say so.
"""

import json
import sys


def packages() -> "list[tuple[str, str]]":
    """Return name and version of what is installed, without the harness: it is not a part of any agent."""
    try:
        from importlib.metadata import distributions
    except ImportError:
        return []
    found: dict[str, str] = {}
    for one in distributions():
        name = str(one.metadata["Name"] or "").lower().replace("_", "-").replace(".", "-")
        if name and name != "codegenie":
            found.setdefault(name, str(one.version))
    return sorted(found.items())


if __name__ == "__main__":
    version = list(sys.version_info[:3])
    line = " ".join([sys.implementation.name, sys.version.split()[0]])
    json.dump({"version": version, "line": line, "packages": packages()}, sys.stdout)
