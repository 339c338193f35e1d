"""A bundle in a git repository: a real one, made by the git program in a folder of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backfill_manager.dags.bundles import source
from backfill_manager.dags.bundles.files import read_bundle
from backfill_manager.dags.bundles.source import BundleSource, FetchedFiles
from backfill_manager.dags.parsers.bundle_state import source_of
from backfill_manager.errors import InvalidInput
from backfill_manager.settings import BundleSettings

ME = {
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_GLOBAL": os.devnull,
}  # fmt: skip


class Repository:
    """A bare repository, and a clone in which somebody works."""

    def __init__(self, root: Path) -> None:
        self.root, self.bare, self.clone = root, root / "repository.git", root / "clone"
        for path, how in ((self.bare, ["--bare"]), (self.clone, [])):
            self.git("init", "--quiet", "--initial-branch=main", *how, str(path), at=root)
        self.git("remote", "add", "origin", str(self.bare))

    def git(self, *args: str, at: Path | None = None) -> str:
        command = ["git", "-c", "commit.gpgsign=false", *args]
        message = subprocess.run(
            command, cwd=at or self.clone, env={**os.environ, **ME}, capture_output=True, check=True
        )
        return message.stdout.decode().strip()

    def commit(self, files: dict[str, str], branch: str = "main") -> str:
        for file, text in files.items():
            (self.clone / file).parent.mkdir(parents=True, exist_ok=True)
            (self.clone / file).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "a change")
        self.git("push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{branch}")
        return self.git("rev-parse", "HEAD")

    def at(self, url: str | None = None, **settings: str) -> BundleSource:
        settings_of_bundle = BundleSettings(name="b", git=url or str(self.bare), **settings)  # type: ignore[arg-type]
        return source_of(settings_of_bundle, cache=self.root / "cache")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def texts(fetched: FetchedFiles) -> dict[str, str]:
    return {file: (fetched.root / file).read_text() for file in read_bundle(fetched.root).files}


def refused(bundle: BundleSource) -> str:
    with pytest.raises(InvalidInput) as message:
        bundle.fetch()
    assert "\n" not in str(message.value)
    return str(message.value)


@pytest.mark.parametrize("url", ["{}", "file://{}"])
def test_what_is_pushed_is_fetched_with_its_commit(repository: Repository, url: str) -> None:
    bundle = repository.at(url.format(repository.bare))
    first = repository.commit({"a.py": "A = 1", "sub/q.sql": "SELECT 1", "logo.png": "x", ".github/x.yml": "x"})
    fetched = bundle.fetch()
    assert (fetched.commit_id, texts(fetched)) == (first, {"a.py": "A = 1", "sub/q.sql": "SELECT 1"})
    assert bundle.fetch() == fetched
    second = repository.commit({"a.py": "A = 2"})
    fetched = bundle.fetch()
    assert (fetched.commit_id, texts(fetched)["a.py"]) == (second, "A = 2")


def test_the_copy_of_a_repository_is_readable_for_its_owner_only(repository: Repository) -> None:
    repository.commit({"dags.py": "x = 1"})
    place = repository.at().fetch().root
    assert [place.stat().st_mode & 0o77, place.parents[1].stat().st_mode & 0o77] == [0, 0]


def test_a_branch_a_tag_and_a_commit_are_refs(repository: Repository) -> None:
    first = repository.commit({"a.py": "1"})
    repository.git("tag", "v1")
    repository.git("tag", "-a", "v1-signed-off", "-m", "a tag with a message")
    repository.git("push", "--quiet", "origin", "--tags")
    second = repository.commit({"a.py": "2"}, branch="feature/two")
    third = repository.commit({"a.py": "3"})
    refs = ["v1", "v1-signed-off", "feature/two", "main", "HEAD", first, first[:10], second, "refs/tags/v1"]
    fetched_files = {ref: repository.at(ref=ref).fetch() for ref in refs}
    assert {ref: fetched.commit_id for ref, fetched in fetched_files.items()} == {
        "v1": first, "v1-signed-off": first, "feature/two": second, "main": third, "HEAD": third,
        first: first, first[:10]: first, second: second, "refs/tags/v1": first,
    }  # fmt: skip
    assert [texts(fetched_files[ref])["a.py"] for ref in ("v1", "feature/two", "main", first[:10])] == [
        "1",
        "2",
        "3",
        "1",
    ]


def test_a_branch_that_was_rewritten_is_followed(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    repository.commit({"a.py": "2"})
    bundle = repository.at(ref="main")
    bundle.fetch()
    repository.git("reset", "--quiet", "--hard", "HEAD~1")
    third = repository.commit({"a.py": "3"})
    fetched = bundle.fetch()
    assert (fetched.commit_id, texts(fetched)) == (third, {"a.py": "3"})


def test_a_commit_is_fetched_once_and_for_all(repository: Repository) -> None:
    commit = repository.commit({"a.py": "1"})
    fetched = repository.at(ref=commit).fetch()
    repository.bare.rename(repository.root / "moved.git")
    assert repository.at(ref=commit).fetch() == fetched


def test_a_folder_of_the_repository_is_the_bundle(repository: Repository) -> None:
    first = repository.commit({"jobs/dags/a.py": "1", "other/b.py": "2"})
    bundle = repository.at(path="./jobs/dags/")
    fetched = bundle.fetch()
    assert (fetched.commit_id, texts(fetched)) == (first, {"a.py": "1"})
    second = repository.commit({"other/b.py": "3"})
    assert bundle.fetch() == FetchedFiles(fetched.root, second)  # its files are the same ones


def test_a_folder_or_ref_that_is_not_there_is_reported(repository: Repository) -> None:
    commit = repository.commit({"jobs/a.py": "1"})[:10]
    where = f"in the git repository {repository.bare} at main ({commit})"
    assert refused(repository.at(ref="main", path="dags")) == f"there is no folder 'dags' {where}"
    assert refused(repository.at(ref="main", path="jobs/a.py")) == f"there is no folder 'jobs/a.py' {where}"
    nothing = f"the git repository {repository.bare} has no branch, tag or commit"
    assert refused(repository.at(ref="mian")) == f"{nothing} 'mian'; did you mean 'main'?"
    assert refused(repository.at(ref="v1")) == f"{nothing} 'v1'; there are main"
    for ref in ("0" * 40, "abcdef0"):
        assert refused(repository.at(ref=ref)).startswith(f"{nothing} {ref!r}")


def test_an_empty_repository_is_reported(repository: Repository) -> None:
    message = f"the git repository {repository.bare} has no branch, tag or commit 'HEAD'; it is empty"
    assert refused(repository.at()) == message


def test_a_repository_that_cannot_be_reached_is_reported_without_the_password(repository: Repository) -> None:
    message = refused(repository.at(url="https://someone:hunter2@127.0.0.1:1/team/dags.git"))
    assert message.startswith("the git repository https://127.0.0.1:1/team/dags.git can't be fetched: ")
    assert "hunter2" not in message
    message = refused(repository.at(url=str(repository.root / "nothing")))
    assert "can't be fetched" in message and "does not appear to be a git repository" in message


def test_the_place_that_people_are_shown_has_no_password() -> None:
    settings = BundleSettings(name="b", git="https://someone:hunter2@example.org/dags.git", ref="v1", path="jobs")
    assert settings.place == "https://example.org/dags.git at v1, jobs"


def test_without_the_git_program_the_error_says_what_to_install(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = repository.at()
    monkeypatch.setenv("PATH", str(repository.root / "nothing"))
    message = refused(bundle)
    assert "needs the program `git`" in message and "apt-get install git" in message


def test_links_out_of_the_bundle_are_not_followed(repository: Repository) -> None:
    (repository.root / "secret.py").write_text("SECRET = 1")
    dags = repository.clone / "dags"
    dags.mkdir()
    (dags / "absolute.py").symlink_to(repository.root / "secret.py")
    (dags / "relative.py").symlink_to("../other/x.py")
    (dags / "round.py").symlink_to("round.py")
    (dags / "nothing.py").symlink_to("gone.py")
    (dags / "inside.py").symlink_to("sub/real.py")
    (dags / "twice.py").symlink_to("inside.py")
    (dags / "folder").symlink_to("/etc")
    repository.commit({"dags/sub/real.py": "R = 1", "other/x.py": "X = 1"})
    fetched = repository.at(path="dags").fetch()
    assert texts(fetched) == {"inside.py": "R = 1", "sub/real.py": "R = 1", "twice.py": "R = 1"}
    assert {path.name for path in fetched.root.iterdir()} == {"inside.py", "sub", "twice.py"}


def test_submodules_are_left_out(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    head = repository.git("rev-parse", "HEAD")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{head},module.py")
    repository.git("commit", "--quiet", "-m", "a submodule")
    repository.git("push", "--quiet", "origin", "HEAD:main")
    assert texts(repository.at().fetch()) == {"a.py": "1"}


def test_files_are_as_they_were_committed(repository: Repository) -> None:
    repository.git("config", "core.autocrlf", "false")
    attributes = "*.sql text eol=crlf\nb.py export-ignore\nc.py export-subst\n"
    repository.commit({".gitattributes": attributes, "a.sql": "1\n", "b.py": "B", "c.py": "$Format:%H$", "é.py": "É"})
    expected = {"a.sql": "1\n", "b.py": "B", "c.py": "$Format:%H$", "é.py": "É"}
    assert texts(repository.at().fetch()) == expected


def test_too_many_files_are_refused(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_FILES", 1)
    repository.commit({"a.py": "1", "b.py": "1", "c.png": "1"})
    assert "has 2 files of 0 MB in '.'; a bundle may have 1 of 512 MB" in refused(repository.at())


def test_a_copy_that_a_killed_process_left_locked_or_damaged_is_made_anew(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    bundle = repository.at()
    bundle.fetch()
    [copy] = (repository.root / "cache").rglob("repository.git")
    (copy / "shallow.lock").write_text("")
    repository.commit({"a.py": "2"})
    assert texts(bundle.fetch()) == {"a.py": "2"}
    for file in (copy / "objects").rglob("*"):
        if file.is_file():
            file.unlink()
    repository.commit({"a.py": "3"})
    assert texts(bundle.fetch()) == {"a.py": "3"}
    (copy / "HEAD").write_text("nonsense")
    repository.commit({"a.py": "4"})
    assert texts(bundle.fetch()) == {"a.py": "4"}


def test_two_bundles_of_one_repository_share_its_copy(repository: Repository) -> None:
    repository.commit({"a/a.py": "1", "b/b.py": "2"})
    assert [texts(repository.at(path=path).fetch()) for path in ("a", "b")] == [{"a.py": "1"}, {"b.py": "2"}]
    assert len(list((repository.root / "cache").rglob("repository.git"))) == 1


def test_only_the_needed_commit_is_copied(repository: Repository) -> None:
    for n in range(5):
        repository.commit({"a.py": str(n)})
    repository.at(ref="main").fetch()
    [copy] = (repository.root / "cache").rglob("repository.git")
    assert repository.git("rev-list", "--count", "FETCH_HEAD", at=copy) == "1"


def test_a_repository_around_the_manager_is_none_of_it(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a manager is started by a git hook."""
    repository.commit({"a.py": "1"})
    monkeypatch.setenv("GIT_DIR", str(repository.root / "nothing"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository.root / "nothing"))
    assert texts(repository.at().fetch()) == {"a.py": "1"}


def forged(repository: Repository, *entries: tuple[str, str, str]) -> str:
    """A commit whose tree git itself would not make: (mode, name, id) each."""
    raw = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(content) for mode, name, content in entries)
    (repository.root / "tree").write_bytes(raw)
    tree = repository.git(
        "hash-object", "-t", "tree", "-w", "--literally", str(repository.root / "tree"), at=repository.bare
    )
    return repository.git("commit-tree", tree, "-m", "forged", at=repository.bare)


def test_a_forged_tree_writes_nothing_outside(repository: Repository) -> None:
    outside = repository.root / "outside"
    outside.mkdir()
    repository.commit({"ok.py": "1", "link.py": str(outside)})
    ok, link = (repository.git("rev-parse", f"HEAD:{name}") for name in ("ok.py", "link.py"))
    folder = repository.git("rev-parse", "HEAD^{tree}")
    names = [("100644", f"{outside}/a.py", ok), ("100644", "x/../../a.py", ok), ("40000", "..", folder)]
    commit = forged(repository, *names, ("100644", "ok.py", ok))
    assert texts(repository.at(ref=commit).fetch()) == {"ok.py": "1"}
    commit = forged(repository, ("120000", "a.py", link), ("40000", "a.py", folder))
    assert "can't be copied" in refused(repository.at(ref=commit))
    assert list(outside.iterdir()) == []


def test_two_processes_may_fetch_at_once(repository: Repository) -> None:
    commits = {branch: repository.commit({"a.py": branch}, branch=branch) for branch in ("one", "two", "three")}
    with ThreadPoolExecutor() as threads:
        fetched = dict(zip(commits, threads.map(lambda ref: repository.at(ref=ref).fetch(), commits), strict=True))
    assert {ref: (fetched_files.commit_id, texts(fetched_files)["a.py"]) for ref, fetched_files in fetched.items()} == {
        ref: (commit, ref) for ref, commit in commits.items()
    }


HOLDS_THE_LOCK = """
import fcntl, os, signal, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_was_stopped_with_the_lock_of_a_copy_is_waited_for_for_a_while_only(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a.py": "A = 1"})
    bundle = repository.at()
    bundle.fetch()
    (lock,) = (repository.root / "cache").rglob("lock")
    with subprocess.Popen([sys.executable, "-c", HOLDS_THE_LOCK, str(lock)]) as holder:
        try:
            _, status = os.waitpid(holder.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            monkeypatch.setattr("backfill_manager.dags.bundles.file_lock.MAX_WAIT_S", 0.2)
            assert f"another process has held the lock {lock} for 200 ms, and may hang" in refused(bundle)
            holder.send_signal(signal.SIGCONT)
            monkeypatch.undo()
            assert texts(bundle.fetch()) == {"a.py": "A = 1"}
        finally:
            holder.kill()
