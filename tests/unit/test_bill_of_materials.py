"""The bill of materials: what a reader of CycloneDX looks for is there, and nothing else decides about it."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.bill_of_materials import bill_of, write_bill
from scripts.locks import RUNTIME, entries

SHA256 = re.compile(r"[0-9a-f]{64}")
# What the schema of CycloneDX 1.6 demands of a bill, a component, a hash and an edge.
REQUIRED = {
    "bill": {"bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies"},
    "component": {"type", "name", "version", "bom-ref", "purl", "hashes", "scope"},
}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "codegenie-1.2.3-py3-none-any.whl"
    path.write_bytes(b"the wheel")
    return path


def lock() -> str:
    return RUNTIME.read_text(encoding="utf-8")


def faults(bill: dict[str, Any]) -> list[str]:
    """Return what a bill lacks."""
    found = [f"no {name}" for name in sorted(REQUIRED["bill"] - bill.keys())]
    components = bill.get("components", [])
    for component in [*components, {**bill["metadata"]["component"], "scope": "required"}]:
        lacking = sorted(REQUIRED["component"] - component.keys())
        found += [f"{component.get('name')}: no {name}" for name in lacking]
        wrong = [entry for entry in component.get("hashes", []) if not SHA256.fullmatch(entry["content"])]
        found += [f"{component['name']}: {entry}" for entry in wrong]
    known = {component.get("bom-ref") for component in [*components, bill["metadata"]["component"]]}
    named = {edge["ref"] for edge in bill["dependencies"]}
    named |= {need for edge in bill["dependencies"] for need in edge["dependsOn"]}
    return found + [f"{name}: not listed" for name in sorted(named - known)]


def test_a_bill_has_every_part_and_its_edges_lead_to_what_it_lists(wheel: Path) -> None:
    bill = bill_of(wheel, lock())

    assert faults(bill) == []
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])


def test_a_part_that_is_missing_is_found(wheel: Path) -> None:
    bill = bill_of(wheel, lock())
    del bill["serialNumber"], bill["components"][0]["purl"], bill["components"][1]["bom-ref"]
    bill["components"][2]["hashes"][0]["content"] = "short"

    assert [fault.split(":")[0] for fault in faults(bill)] == [
        "no serialNumber",
        "annotated-types",
        "blake3",
        "click",
        "pkg",
    ]


def test_a_bill_lists_every_package_of_the_lock_with_its_hashes_and_its_name_for_tools(wheel: Path) -> None:
    listed = {part["name"]: part for part in bill_of(wheel, lock())["components"]}

    assert listed.keys() == entries(lock()).keys()
    for name, entry in entries(lock()).items():
        assert listed[name]["purl"] == f"pkg:pypi/{name}@{entry.version}"
        assert {content["content"] for content in listed[name]["hashes"]} == set(entry.hashes)


def test_a_bill_tells_what_runs_from_what_only_builds(wheel: Path) -> None:
    scopes = {part["name"]: part["scope"] for part in bill_of(wheel, lock())["components"]}

    assert (scopes["pydantic"], scopes["pydantic-core"]) == ("required", "required")
    assert (scopes["hatchling"], scopes["trove-classifiers"]) == ("excluded", "excluded")


def test_a_bill_names_the_wheel_by_its_hash(wheel: Path) -> None:
    subject = bill_of(wheel, lock())["metadata"]["component"]

    assert (subject["name"], subject["version"]) == ("codegenie", "1.2.3")
    assert subject["hashes"][0]["content"] == hashlib.sha256(b"the wheel").hexdigest()


def test_the_same_wheel_gives_the_same_bytes_and_another_wheel_another_serial_number(wheel: Path) -> None:
    first = write_bill(wheel).read_bytes()
    again = write_bill(wheel).read_bytes()
    wheel.write_bytes(b"another wheel")
    other = json.loads(write_bill(wheel).read_bytes())

    assert write_bill(wheel).name == "codegenie-1.2.3.cdx.json"
    assert first == again
    assert other["serialNumber"] != json.loads(first)["serialNumber"]
