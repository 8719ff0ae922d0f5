"""Write a bill of materials (SBOM) of a wheel: CycloneDX 1.6, JSON, standard library only.

It lists what requirements.txt pins, with the hashes of the files that may be installed. `required` is what
an installed wheel needs; `excluded` is what only building it needs. The same wheel and the same lock give the
same bytes: there is no time in it, and the serial number is made from the content.
"""

import hashlib
import json
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.locks import ROOT, RUNTIME, Entry, entries, needs, normalised, reachable

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
SUFFIX = ".cdx.json"


def package_url(name: str, version: str) -> str:
    """Return the name of a package in databases of vulnerabilities."""
    return f"pkg:pypi/{name}@{version}"


def runtime_needs() -> set[str]:
    """Return what pyproject.toml says an installed wheel needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {normalised(requirement) for requirement in project["dependencies"]}


def sha256(content: str) -> dict[str, str]:
    """Return a hash as CycloneDX writes it."""
    return {"alg": "SHA-256", "content": content}


def component(entry: Entry, *, required: bool) -> dict[str, Any]:
    """Return one package of the lock."""
    reference = package_url(entry.name, entry.version)
    return {
        "type": "library",
        "bom-ref": reference,
        "name": entry.name,
        "version": entry.version,
        "scope": "required" if required else "excluded",
        "hashes": [sha256(content) for content in sorted(entry.hashes)],
        "purl": reference,
    }


def edges(lock: Mapping[str, Entry]) -> list[dict[str, Any]]:
    """Return which package of the lock needs which."""
    urls = {name: package_url(name, entry.version) for name, entry in lock.items()}
    return [
        {
            "ref": urls[name],
            "dependsOn": sorted(urls[other] for other in needs(name, extras=False) & urls.keys()),
        }
        for name in sorted(lock)
    ]


def bill_of(wheel: Path, lock_text: str) -> dict[str, Any]:
    """Return the bill of a wheel and of the lock that its users install from."""
    name, version = wheel.name.split("-")[:2]
    own = package_url(name, version)
    lock = entries(lock_text)
    required = reachable(runtime_needs(), lock, extras=False)
    urls = sorted(package_url(need, lock[need].version) for need in runtime_needs())
    bill: dict[str, Any] = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": name,
                "version": version,
                "hashes": [sha256(hashlib.sha256(wheel.read_bytes()).hexdigest())],
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": own,
            }
        },
        "components": [component(lock[entry], required=entry in required) for entry in sorted(lock)],
        "dependencies": [{"ref": own, "dependsOn": urls}, *edges(lock)],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True))
    return {**bill, "serialNumber": f"urn:uuid:{serial}"}


def write_bill(wheel: Path) -> Path:
    """Write the bill beside the wheel; return its path."""
    target = wheel.with_name("-".join(wheel.name.split("-")[:2]) + SUFFIX)
    text = json.dumps(bill_of(wheel, RUNTIME.read_text(encoding="utf-8")), indent=2, sort_keys=True)
    target.write_text(f"{text}\n", encoding="utf-8")
    return target
