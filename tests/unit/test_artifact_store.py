"""Artefacts lie under their hashes and are believed for nothing else."""

import os
from pathlib import Path

import pytest
from blake3 import blake3

from codegenie.eval.errors import ChainTamperDetected, HarnessFailure
from codegenie.eval.log.artifacts import ArtifactStore


def test_bytes_come_back_and_what_was_never_kept_is_none(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    digest = store.keep(b"some bytes")
    assert digest == blake3(b"some bytes").hexdigest()
    assert store.read(digest) == b"some bytes"
    assert store.read("0" * 64) is None
    assert not store.is_damaged(digest)
    assert not store.is_damaged("0" * 64)


def test_keeping_twice_writes_once(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    path = store.path(store.keep(b"some bytes"))
    before = path.stat()
    store.keep(b"some bytes")
    assert path.stat().st_ino == before.st_ino
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


@pytest.mark.parametrize("how", ["other bytes", "link", "pipe", "huge"])
def test_damage_is_an_integrity_error_and_keeping_mends_it(tmp_path: Path, how: str) -> None:
    store = ArtifactStore(tmp_path)
    digest = store.keep(b"some bytes")
    path = store.path(digest)
    path.unlink()
    if how == "other bytes":
        path.write_bytes(b"other bytes")
    elif how == "link":
        (tmp_path / "same").write_bytes(b"some bytes")
        path.symlink_to(tmp_path / "same")
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"")
        os.truncate(path, 1 << 40)
    assert store.is_damaged(digest)
    with pytest.raises(ChainTamperDetected) as caught:
        store.read(digest)
    assert caught.value.where == str(path)
    assert store.keep(b"some bytes") == digest
    assert store.read(digest) == b"some bytes"
    assert not path.is_symlink()


def test_a_place_that_cannot_be_written_is_a_typed_failure(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file")
    with pytest.raises(HarnessFailure, match="artefact"):
        ArtifactStore(tmp_path / "artifacts").keep(b"some bytes")
    digest = blake3(b"some bytes").hexdigest()
    ArtifactStore(tmp_path).path(digest).mkdir(parents=True)
    with pytest.raises(HarnessFailure, match="cannot keep"):
        ArtifactStore(tmp_path).keep(b"some bytes")


def test_making_durable_passes_over_what_is_gone_and_says_what_cannot_be(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    digest = store.keep(b"some bytes")
    store.make_durable({digest, digest, "0" * 64})
    path = store.path(digest)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(HarnessFailure):
        store.make_durable({digest})
