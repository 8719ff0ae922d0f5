"""What is seen from inside a box: paths that are shown, secrets that are not, files that are made."""

import os
from pathlib import Path

import pytest

from codegenie.eval.boxes import layout
from codegenie.eval.boxes.request import BoxView
from codegenie.eval.errors import SutSpecInvalid
from codegenie.eval.limits import LIMITS


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a project with a bench in it."""
    for name in ("agent/run.py", "bench/case/expected", "agent/deep/inner/secret", "agent/deep/other"):
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "project" / "link").symlink_to("/root")
    return tmp_path.resolve() / "project"


def test_a_new_root_shows_the_system_and_what_is_named_and_covers_the_secrets_in_it(project: Path) -> None:
    secrets = (f"{project}/bench", "/nowhere/else", str(project.parent / "log"))
    root = layout.new_root(BoxView(readable=(str(project),), secrets=secrets))

    everything = (*root.shown, *root.shown_in_private)
    assert "/usr" in root.shown
    assert str(project) in everything
    assert root.hidden == (f"{project}/bench",)
    assert not {"/", "/home", "/root", "/var", "/run", "/sys", "/etc"} & set(everything)


def test_a_secret_in_another_one_needs_no_cover_of_its_own(project: Path) -> None:
    secrets = (f"{project}/bench", f"{project}/bench/case", f"{project}/agent/deep")
    root = layout.new_root(BoxView(readable=(str(project),), secrets=secrets))

    assert root.hidden == (f"{project}/agent/deep", f"{project}/bench")


def test_a_path_below_a_private_directory_is_bound_after_it(project: Path) -> None:
    root = layout.new_root(BoxView(readable=(str(project),)))

    assert (str(project) in root.shown_in_private) == str(project).startswith("/tmp/")
    assert layout.new_root(BoxView()).shown_in_private == ()


def test_of_a_directory_that_is_closed_to_roots_agents_the_entries_are_shown(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    os.mkfifo(project / "pipe")
    project.chmod(0o700)
    secrets = (f"{project}/bench", f"{project}/agent/deep")
    root = layout.new_root(BoxView(readable=(str(project),), secrets=secrets))

    everything = (*root.shown, *root.shown_in_private)
    assert [path for path in everything if path.startswith(str(project))] == [f"{project}/agent"]
    assert (root.links | root.links_in_private)[f"{project}/link"] == "/root"
    assert root.hidden == (f"{project}/agent/deep",)


def test_an_ordinary_users_closed_directory_is_shown_whole(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 2777)
    project.chmod(0o700)
    root = layout.new_root(BoxView(readable=(str(project),)))

    assert str(project) in (*root.shown, *root.shown_in_private)


def test_a_closed_directory_with_too_many_entries_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for number in range(LIMITS.closed_directory_entries):
        (project / f"{number}.py").touch()
    project.chmod(0o700)
    with pytest.raises(SutSpecInvalid, match="closed to other users, and it has more than 256 entries"):
        layout.new_root(BoxView(readable=(str(project),)))


def test_no_shown_path_lies_below_another(project: Path) -> None:
    root = layout.new_root(BoxView(readable=(f"{project}/agent", str(project), "/usr/bin")))

    everything = (*root.shown, *root.shown_in_private)
    assert [path for path in everything if path.startswith((f"{project}/", "/usr/"))] == []


def test_files_of_etc_that_may_hold_credentials_are_not_shown() -> None:
    root = layout.new_root(BoxView())
    names = {os.path.basename(path) for path in (*root.shown, *root.links) if path.startswith("/etc/")}

    assert not names & {
        "gitconfig",
        "npmrc",
        "pip.conf",
        "netrc",
        "machine-id",
        "environment",
        "sudoers",
        "shadow",
    }
    assert {
        "/etc/passwd",
        "/etc/group",
        "/etc/hosts",
        "/etc/hostname",
        "/etc/resolv.conf",
    } == root.files.keys()


@pytest.mark.parametrize(("network", "is_empty"), [("none", True), ("broker", True), ("host", False)])
def test_only_the_network_of_the_host_has_its_name_servers(network: str, is_empty: bool) -> None:
    view = BoxView(network=network)  # type: ignore[arg-type]
    text = layout.new_root(view).files["/etc/resolv.conf"]

    assert text == ("" if is_empty else Path("/etc/resolv.conf").read_text())


def inside(project: Path, paths: list[str]) -> list[str]:
    return sorted(path for path in paths if path.startswith(str(project)))


def test_without_a_new_root_a_directory_is_shown_entry_by_entry_around_its_secrets(project: Path) -> None:
    secrets = (f"{project}/bench", f"{project}/agent/deep/inner/secret")
    whole, listed = layout.readable_places(BoxView(readable=(str(project),), secrets=secrets))

    assert inside(project, whole) == [f"{project}/agent/deep/other", f"{project}/agent/run.py"]
    assert inside(project, listed) == [
        str(project),
        *(f"{project}/{name}" for name in ("agent", "agent/deep", "agent/deep/inner")),
    ]


def test_without_a_new_root_a_link_beside_a_secret_is_not_followed(project: Path) -> None:
    whole, listed = layout.readable_places(BoxView(readable=(str(project),), secrets=(f"{project}/bench",)))

    assert f"{project}/link" not in {*whole, *listed}


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("relative/path", "not an absolute path"),
        ("/usr/../root", "not an absolute path"),
        ("/usr/", "not an absolute path"),
        ("/", "has its own"),
        ("/etc", "has its own"),
        ("/proc/1", "has its own"),
        ("/dev/shm", "has its own"),
        ("/sys/kernel", "has its own"),
        ("/home", "private directories"),
        ("/tmp", "private directories"),
        ("/workspace/tool", "private directories"),
        ("/agent/tool", "private directories"),
        ("/usr/no-such-directory", "does not exist"),
    ],
)
def test_a_path_that_cannot_be_shown_is_refused_with_the_reason(path: str, why: str) -> None:
    for shown in (layout.new_root, layout.readable_places):
        with pytest.raises(SutSpecInvalid, match=why):
            shown(BoxView(readable=(path,)))


def test_a_path_through_a_link_is_refused_with_its_real_path(project: Path) -> None:
    (project / "to-agent").symlink_to(project / "agent")

    with pytest.raises(SutSpecInvalid, match=f"its real path is {project}/agent"):
        layout.new_root(BoxView(readable=(f"{project}/to-agent",)))


@pytest.mark.parametrize("shown", ["bench", "bench/case", "bench/case/expected"])
def test_a_path_in_a_secret_is_refused(project: Path, shown: str) -> None:
    view = BoxView(readable=(f"{project}/{shown}",), secrets=(f"{project}/bench",))

    with pytest.raises(SutSpecInvalid, match="which an agent must not see") as refused:
        layout.new_root(view)
    assert refused.value.hint


def test_a_name_that_only_begins_like_a_secret_is_shown(project: Path) -> None:
    (project / "bench-tools").mkdir()
    view = BoxView(readable=(f"{project}/bench-tools",), secrets=(f"{project}/bench",))

    layout.check(view)


def test_the_system_itself_cannot_be_a_secret() -> None:
    with pytest.raises(SutSpecInvalid, match="it lies in /usr"):
        layout.new_root(BoxView(secrets=("/usr",)))
