"""Where settings come from, which one wins, and how errors name their place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from backfill_manager.errors import InvalidConfig
from backfill_manager.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(text: str, environ: dict[str, str] | None = None, state: str | None = None) -> Settings:
    Path("manager.yaml").write_text(text)
    return load_settings("manager.yaml", state=state, environ=environ or {})


def wrong(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidConfig) as message:
        load(text, environ)
    return str(message.value).splitlines()


def test_without_any_file_the_defaults_hold() -> None:
    settings = load_settings(None, environ={})
    assert (settings.state, settings.warehouse, settings.lease.seconds) == ("./state", "./warehouse", 15)
    assert [(p.name, p.slots, p.weight, p.min_share) for p in settings.pools] == [
        ("scheduled", 16, 4, 2),
        ("backfill", 16, 1, 0),
    ]
    assert settings.bundles == []


def test_a_variable_changes_no_default_for_settings_that_are_read_later() -> None:
    assert load("", {"BFM_POOLS__BACKFILL__SLOTS": "2"}).pools[1].slots == 2
    assert load("").pools[1].slots == 16


def test_the_example_bundle_is_there_when_its_folder_is_and_nothing_else_is_set() -> None:
    Path("jobs/bundles").mkdir(parents=True)
    assert [(b.name, b.path) for b in load_settings(None, environ={}).bundles] == [("examples", "jobs/bundles")]
    assert load("bundles: []").bundles == []


def test_the_file_in_conf_is_found_by_itself() -> None:
    Path("conf").mkdir()
    Path("conf/manager.yaml").write_text("state: ./elsewhere")
    assert load_settings(None, environ={}).state == os.path.abspath("conf/elsewhere")


def test_relative_paths_of_a_file_begin_at_the_file_and_all_others_where_one_is(tmp_path: Path) -> None:
    Path("etc/conf").mkdir(parents=True)
    Path("etc/conf/manager.yaml").write_text(
        """
        state: ../state
        warehouse: warehouse
        snapshots: ./snapshots
        bundles:
          - {name: folder, path: ../dags, python: env/bin/python}
          - {name: absolute, path: /srv/dags}
          - {name: clone, git: ../repository, path: dags}
          - {name: remote, git: git@example.org:team/dags.git}
          - {name: https, git: https://example.org/dags.git}
        """
    )
    conf, etc = "etc/conf/manager.yaml", tmp_path / "etc"
    for where, named in ((".", conf), ("etc", "conf/manager.yaml"), ("/", str(tmp_path / conf))):
        os.chdir(tmp_path / where)
        settings = load_settings(named, environ={})
        folder, absolute, clone, remote, https = settings.bundles
        assert (settings.state, settings.warehouse) == (f"{etc}/state", f"{etc}/conf/warehouse")
        assert settings.snapshots == f"{etc}/conf/snapshots"
        assert (folder.path, folder.python) == (f"{etc}/dags", f"{etc}/conf/env/bin/python")
        assert (absolute.path, clone.git, clone.path) == ("/srv/dags", f"{etc}/repository", "dags")
        assert (remote.git, https.git) == ("git@example.org:team/dags.git", "https://example.org/dags.git")
    os.chdir(tmp_path)
    assert load_settings(conf, environ={"BFM_STATE": "./mine"}).state == "./mine"
    assert load_settings(conf, state="./mine", environ={}).state == "./mine"


@pytest.mark.parametrize(
    "place", ["s3://bucket/state", "abfss://c@a.dfs.core.windows.net/x", "main.jobs", "~/state", "/srv/state"]
)
def test_a_state_that_is_no_relative_path_stays_as_it_is_written(place: str) -> None:
    assert load(f"state: {place}").state == place


def test_the_home_of_who_reads_it_is_written_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    text = """
        warehouse: ~/warehouse
        secrets: {files: ~/secrets}
        bundles: [{name: folder, path: ~/dags, python: ~/env/bin/python}, {name: clone, git: ~/repository}]
        """
    settings = load(text, {"BFM_SNAPSHOTS": "~/snapshots"})
    folder, clone = settings.bundles
    assert (settings.warehouse, settings.snapshots) == ("/home/me/warehouse", "/home/me/snapshots")
    assert (settings.secrets.files, folder.path, folder.python, clone.git) == (
        "/home/me/secrets", "/home/me/dags", "/home/me/env/bin/python", "/home/me/repository",
    )  # fmt: skip


def test_a_state_named_like_a_schema_is_a_folder_where_there_is_one() -> None:
    Path("main.jobs").mkdir()
    assert load("state: main.jobs").state == os.path.abspath("main.jobs")
    assert load("warehouse: dbfs:/warehouse").warehouse == "dbfs:/warehouse"


def test_the_environment_beats_the_file_and_a_flag_beats_both() -> None:
    text = "state: ./file\nlease: {seconds: 20}"
    assert load(text).state == os.path.abspath("file")
    settings = load(text, {"BFM_STATE": "./environment", "BFM_LEASE__SECONDS": "30"})
    assert (settings.state, settings.lease.seconds) == ("./environment", 30)
    assert load(text, {"BFM_STATE": "./environment"}, state="./flag").state == "./flag"


def test_the_file_may_be_named_in_the_environment() -> None:
    Path("mine.yaml").write_text("state: ./mine")
    assert load_settings(None, environ={"BFM_CONF": "mine.yaml"}).state == os.path.abspath("mine")


def test_one_of_several_pools_goes_by_its_name_in_the_environment() -> None:
    settings = load(
        "pools: [{name: heavy-load}]", {"BFM_POOLS__BACKFILL__SLOTS": "2", "BFM_POOLS__HEAVY_LOAD__WEIGHT": "3"}
    )
    assert {p.name: (p.slots, p.weight) for p in settings.pools} == {
        "heavy-load": (16, 3),
        "scheduled": (16, 4),
        "backfill": (2, 1),
    }


def test_a_list_or_mapping_comes_through_the_environment_as_json() -> None:
    settings = load(
        "", {"BFM_BUNDLES": '[{"name": "a", "path": "b"}]', "BFM_SPARK__CONF": '{"spark.ui.enabled": false}'}
    )
    assert settings.bundles[0].path == "b"
    assert settings.spark.conf == {"spark.ui.enabled": "false"}


def test_paths_of_variables_begin_where_the_script_was_started_and_those_of_the_file_stay() -> None:
    """jobs/submit.py has changed the current directory since."""
    text = "bundles: [{name: a, path: b}, {name: c, git: git@host:x, path: y}]"
    environ = {"BFM_STARTED_IN": "/home/me", "BFM_BUNDLES__C__PATH": "dags", "BFM_BUNDLES__A__PYTHON": "../bin/python"}
    one, other = load(text, environ).bundles
    assert (one.path, one.python, other.git, other.path) == (
        str(Path("b").absolute()),
        "/home/bin/python",
        "git@host:x",
        "dags",
    )
    listed = {"BFM_STARTED_IN": "/home/me", "BFM_BUNDLES": "[{name: a, path: dags}, {name: b, path: ~/dags}]"}
    assert [bundle.path for bundle in load("", listed).bundles] == ["/home/me/dags", str(Path("~/dags").expanduser())]


@pytest.mark.parametrize("begins", ["[", "{"])
def test_a_text_of_the_environment_is_taken_as_it_is(begins: str) -> None:
    secret, url = f"{begins}0123456789: abcdefghijklmnopqrstuvw".replace(" ", ""), f"{begins}json://x"
    environ = {"BFM_API__SESSION_SECRET": secret, "BFM_STATE": f"{begins}state", "BFM_NOTIFICATIONS__OPS__URL": url}
    settings = load("notifications: [{name: ops, url: 'json://y'}]", environ)
    assert (settings.api.session_secret, settings.state) == (secret, f"{begins}state")
    assert (sent_to := settings.notifications[0].url) is not None and sent_to.get_secret_value() == url


def test_both_standard_pools_exist_also_where_the_environment_lists_others() -> None:
    environ = {"BFM_POOLS": "[{name: web, slots: 2}, {name: backfill, slots: 3}]", "BFM_POOLS__SCHEDULED__SLOTS": "5"}
    assert {p.name: (p.slots, p.weight) for p in load("pools: [{name: heavy}]", environ).pools} == {
        "web": (2, 1),
        "backfill": (3, 1),
        "scheduled": (5, 4),
    }


def test_limits_of_a_pools_processes_are_megabytes_and_a_nice() -> None:
    settings = load("pools: [{name: heavy, memory: 1.5 GB, nice: 12}, {name: small, memory: 64}]")
    assert {p.name: (p.memory, p.nice) for p in settings.pools if p.name in ("heavy", "small")} == {
        "heavy": (1536, 12), "small": (64, None),
    }  # fmt: skip


def test_what_a_file_leaves_out_of_a_standard_pool_keeps_that_pools_own_default() -> None:
    (scheduled,) = (pool for pool in load("pools: [{name: scheduled, slots: 4}]").pools if pool.name == "scheduled")
    assert (scheduled.slots, scheduled.weight, scheduled.min_share) == (4, 4, 2)


def test_other_variables_that_begin_alike_are_ignored() -> None:
    assert load("", {"BFM_CACHE": "/somewhere", "BFMX": "1", "HOME": "/"}) == load("")


def test_secrets_have_places_and_a_secret_is_no_setting() -> None:
    assert load("").secrets.model_dump() == {"env": "BFM_SECRET_", "files": None, "databricks": None, "allow": None}
    environ = {"BFM_SECRET_A__B": "x", "BFM_SECRET_TOKEN": "x", "BFM_SECRETS__DATABRICKS": "prod"}
    settings = load("secrets: {files: run/secrets}", environ)
    assert (settings.secrets.files, settings.secrets.databricks) == (os.path.abspath("run/secrets"), "prod")
    assert "beginning of a variable's name" in wrong("secrets: {env: a-b}")[0]


def test_every_mistake_is_reported_at_once_with_its_line_and_the_nearest_name() -> None:
    text = "stat: ./x\npools:\n  - name: scheduled\n    slots: 0\n    weigth: 3\nlease:\n  seconds: soon\n"
    assert wrong(text, {"BFM_LIMITS__MAX_ACTIVE_RUNS": "-1"}) == [
        "manager.yaml, line 4: pools[0].slots must be more than 0, not 0",
        "manager.yaml, line 5: pools[0].weigth is not a setting; did you mean 'weight'?",
        "environment, BFM_LIMITS__MAX_ACTIVE_RUNS: limits.max_active_runs must be more than 0, not '-1'",
        "manager.yaml, line 7: lease.seconds must be a whole number, not 'soon'",
        "manager.yaml, line 1: stat is not a setting; did you mean 'state'?",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "pools: [{name: p, memory: much}]",
            "pools[0].memory must be MB, or a size such as `512 MB` or `2 GB`, not 'much'",
        ),
        ("pools: [{name: p, nice: 20}]", "pools[0].nice must be 19 or less, not 20"),
        ("pools: [{name: p, slots: yes}]", "manager.yaml, line 1: pools[0].slots must be a number, not true"),
        ("pools: [{name: p, slots: 1.5}]", "pools[0].slots must be a whole number, not 1.5"),
        ("pools: [{name: p}, {name: p}]", "pools each name once; twice here: p"),
        (
            f"api: {{tokens: [{{name: ada, sha256: {'a' * 64}}}, {{name: ben, sha256: {'a' * 64}, role: operator}}]}}",
            "api.tokens each token for one name; ada and ben have the same sha256",
        ),
        ("pools: [{name: control}]", "pools[0].name must be another name: `control` is the pool that plans"),
        (
            "pools: [{name: 'a b'}]",
            "pools[0].name must be 1 to 200 letters (a to z), digits, `_`, `.` or `-`, not dots only, not 'a b'",
        ),
        ("pools: [{slots: 3}]", "pools[0].name is missing"),
        ("pools: 3", "pools must be a list, not 3"),
        ("pools: [3]", "pools[0] must be keys and values, not 3"),
        (
            "bundles: [{name: a, path: b, parser: evnt}]",
            "bundles[0].parser must be 'standard', 'single_pass' or 'event', not 'evnt'; did you mean 'event'?",
        ),
        ("bundles: [{name: a, path: b}, {name: a, path: c}]", "bundles each name once; twice here: a"),
        (
            "bundles:\n- name: a\n  path: b\n  fetch_interval: 0",
            "line 4: bundles[0].fetch_interval must be more than 0",
        ),
        ("bundles: [{name: a}]", "line 1: bundles[0] must have a path: a folder, a .zip or a .whl"),
        (
            "bundles: [{name: a, path: b, ref: v1}]",
            "bundles[0] must have the repository's address as `git` when it has",
        ),
        (
            "bundles: [{name: a, git: /r, path: ../b}]",
            "must have as path a folder inside the repository such as `dags`, not '../b'",
        ),
        (
            "bundles: [{name: a, git: /r, ref: --upload-pack=x}]",
            "bundles[0].ref must be a branch, a tag or a commit, not '--upload-pack=x'",
        ),
        (
            "bundles: [{name: a, path: b, python: /v/bin/python, requirements: [x]}]",
            "bundles[0] must have python or requirements, not both: an interpreter has its packages already",
        ),
        (
            "bundles: [{name: a, path: b, requirements: ../requirements.txt}]",
            "bundles[0].requirements must be a file of the bundle such as `requirements.txt`, or a list of requirements "
            "such as [pandera==0.29], not '../requirements.txt'",
        ),
        (
            "bundles: [{name: a, path: b, requirements: '--index-url https://ada:hunter2@pypi.example'}]",
            "such as [pandera==0.29], not '--index-url https://***@pypi.example'",
        ),
        (
            "bundles: [{name: a, path: b, requirements: [1]}]",
            "bundles[0].requirements must be a file of the bundle such as `requirements.txt`, or a list of",
        ),
        ("bundles: [{name: a, path: b, python: '  '}]", "bundles[0].python must be some text"),
        ("bundles: [{name: a, git: /r, ref: 'a:b'}]", "bundles[0].ref must be a branch, a tag or a commit, not 'a:b'"),
        (
            "bundles: [{name: a, path: b, import_memory: 0}]",
            "bundles[0].import_memory must be 16 or more, not 0",
        ),
        (
            "bundles: [{name: a, path: b, import_memory: 10000000}]",
            "bundles[0].import_memory must be 1048576 or less, not 10000000",
        ),
        (
            "bundles: [{name: a, path: b, import_timeout: 2 days}]",
            "bundles[0].import_timeout must be 86400 or less, not '2 days'",
        ),
        (
            "bundles: [{name: a, path: b, fetch_interval: 10000000000}]",
            "bundles[0].fetch_interval must be 315360000 or less, not 10000000000",
        ),
        (
            "bundles: [{name: a, path: b, fetch_interval: 5 parsecs}]",
            "fetch_interval must be seconds, or a time such as `90s`, `5 minutes`, `2h` or `1 day`, not '5 parsecs'",
        ),
        ("bundles: [{name: a, path: b, fetch_interval: yes}]", "bundles[0].fetch_interval must be a number, not true"),
        (
            "bundles: [{name: a, path: b, directories: [{path: a/../../b}]}]",
            "bundles[0].directories[0].path must be a folder inside the bundle such as `reports/daily`, not 'a/../../b'",
        ),
        (
            "bundles: [{name: a, path: b, directories: [{path: /}]}]",
            "bundles[0].directories[0].path must be a folder inside the bundle such as `reports/daily`, not '/'",
        ),
        (
            "bundles: [{name: a, path: b, directories: [{path: c}, {path: /c/}]}]",
            "bundles[0].directories each path once; twice here: c",
        ),
        ("snapshots: ''", "snapshots must be some text, not ''"),
        ("lease: {seconds: 1}\nlease: {seconds: 2}", "manager.yaml, line 2: 'lease' is here twice; first on line 1"),
        ("lease: 5", "manager.yaml, line 1: lease must be keys and values"),
        ("api: {port: 70000}", "api.port must be 65535 or less, not 70000"),
        (
            "api: {tokens: [{name: a, sha256: secret}]}",
            "api.tokens[0].sha256 must be the token's SHA-256 as 64 hex digits",
        ),
        ("spark: {conf: {a: [1]}}", "spark.conf.a must be text"),
        ("state: ''", "state must be some text, not ''"),
        ("state: s3://key:opensesame@lake/state", "line 1: state must not hold a password: give credentials by"),
        ("warehouse: 's3a://key:opensesame@lake'", "line 1: warehouse must not hold a password"),
        ("api: {tokens: bfm_opensesame}", "line 1: api.tokens must be a list"),
        ("api: {tokens: [bfm_opensesame]}", "line 1: api.tokens[0] must be keys and values"),
        ("- a", "manager.yaml, line 1: must hold keys such as `state: ./state`."),
        ("state: [", "manager.yaml, line 1: not valid YAML"),
        ("state: *nothing", "manager.yaml, line 1: not valid YAML: found undefined alias"),
        ("state: &a [*a]", "manager.yaml, line 1: an alias stands inside of what it stands for"),
        (
            "state: !!python/object:os.system {}",
            "manager.yaml, line 1: !!python/object:os.system is a type that is not read here",
        ),
        ("? [1, 2]\n: 3", "manager.yaml, line 1: a key must be text, and a list or mapping is none in YAML"),
    ],
)
def test_a_wrong_file_is_reported_in_one_line(text: str, message: str) -> None:
    lines = wrong(text)
    assert message in "\n".join(lines)
    assert len(lines) == 1
    assert "opensesame" not in lines[0]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("BFM_LEASE__SECOND", "3", "there is no such setting; did you mean 'BFM_LEASE__SECONDS'?"),
        ("BFM_POOLS__BACKFIL__SLOTS", "3", "there is no such setting; did you mean 'BFM_POOLS__BACKFILL__SLOTS'?"),
        ("BFM_STATE__X", "3", "there is no such setting"),
        ("BFM_SPARK__CONF", "{", "not valid YAML or JSON"),
        ("BFM_SPARK__CONF", "{a: 1, a: 2}", "'a' is here twice"),
        ("BFM_SPARK__CONF", "{a: 1}\n---\n{b: 2}", "only one YAML document is read"),
        ("BFM_LEASE", "3", "lease must be keys and values"),
        ("BFM_STATE", "s3://key:opensesame@lake/state", "state must not hold a password"),
        ("BFM_SPARK__CONF", "spark.hadoop.fs.s3a.secret.key=opensesame", "spark.conf must be keys and values"),
    ],
)
def test_a_wrong_variable_is_reported_by_its_name(variable: str, value: str, message: str) -> None:
    (line,) = wrong("", {variable: value})
    assert line.startswith(f"environment, {variable}: ")
    assert message in line
    assert "opensesame" not in line


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_a_named_file_that_cannot_be_read_is_an_error_and_not_the_defaults(content: bytes | None) -> None:
    if content is not None:
        Path("m.yaml").write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"m\.yaml(, line 1: not UTF-8 text| \(from BFM_CONF\) does not exist)"):
        load_settings(None, environ={"BFM_CONF": "m.yaml"})
    with pytest.raises(InvalidConfig, match=r"\. \(from --conf\) can't be read: Is a directory"):
        load_settings(".", environ={})


def test_reading_the_settings_imports_nothing_heavy() -> None:
    program = (
        "import sys; from backfill_manager.settings import load_settings; load_settings(None, environ={});"
        "print(sorted({'yaml', 'structlog', 'pyspark', 'pandas', 'pyarrow', 'pendulum'} & set(sys.modules)))"
    )
    message = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert message.stdout.strip() == "[]"


def test_ages_of_retention_are_times_of_an_hour_or_more() -> None:
    for_ever = dict.fromkeys(("runs", "tries", "logs", "requests", "snapshots", "import_errors"))
    assert dict(load("").retention) == {**for_ever, "previews": 7 * 86_400}
    assert load("retention: {runs: 90 days, logs: 3600}").retention.runs == 90 * 86_400
    (line,) = wrong("retention: {runs: 90}")
    assert "retention.runs must be 1 hour or more, such as `90 days`, not 90 seconds" in line
    (line,) = wrong("retention: {logs: 1 minute}")
    assert "retention.logs must be 1 hour or more, such as `90 days`, not '1 minute'" in line
    (line,) = wrong("retention: {history_days: 30}")
    assert "retention.history_days is not a setting; known here: runs, tries" in line


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("chat", "must be keys and values"), ("{name: chat}", "must have either url or url_env"),
        ("{name: chat, url: 'slack://a/b', url_env: CHAT}", "must have either url or url_env"),
        ("{name: chat, url: 'slack://a/b', events: [broken]}", "'failed', 'late', 'deadlocked' or 'done'"),
        ("{name: chat, url: 'slack://a/b', on: [failed]}", "on is not a setting"),
        ("{name: chat, url: 'slack://a/b', group: 2 days}", "must be 86400 or less"),
        ("{name: chat, url: 'slack://a/b'}, {name: chat, url_env: CHAT}", "each name once"),
    ],
)  # fmt: skip
def test_a_target_of_notifications_that_is_wrong_is_refused_in_one_line(entry: str, complaint: str) -> None:
    (line,) = wrong(f"notifications: [{entry}]")
    assert line.startswith("manager.yaml, line 1: notifications")
    assert complaint in line


def test_the_address_of_a_target_is_not_printed() -> None:
    found = load("notifications: [{name: chat, url: 'slack://opensesame', group: 5 min}]")
    assert found.notifications[0].group == 300.0
    assert "opensesame" not in f"{found!r} {found.model_dump(mode='json')}"


def test_a_few_lines_that_unfold_to_a_billion_values_are_refused() -> None:
    lines = ["spark:", "  conf:", "    a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"    a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "the document holds too much" in "\n".join(wrong("\n".join(lines)))


def test_a_token_that_was_pasted_in_place_of_its_hash_is_not_printed() -> None:
    assert "hunter2" not in "\n".join(wrong("api: {tokens: [{name: a, sha256: hunter2}]}"))


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("45", 45), ("0.5", 0.5), ("90s", 90), ("'45'", 45), ("5 minutes", 300), ("1 minute", 60), ("2h", 7200),
        ("1.5 hours", 5400), ("1 day", 86400), ("2 Days", 172800), ("3min", 180), ("10 sec", 10),
    ],
)  # fmt: skip
def test_a_time_may_have_a_unit(written: str, seconds: float) -> None:
    text = f"bundles: [{{name: a, path: b, fetch_interval: {written}}}]"
    assert load(text).bundles[0].fetch_interval == seconds
    assert load("bundles: [{name: a, path: b}]", {"BFM_BUNDLES__A__FETCH_INTERVAL": written.strip("'")}).bundles[
        0
    ].fetch_interval == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["5ms", "soon", "-5", "1 h 30", "1e3", "''", "٣ minutes", "0x10h", "5 minutess"])
def test_a_time_that_is_none_is_reported(written: str) -> None:
    (line,) = wrong(f"bundles: [{{name: a, path: b, import_timeout: {written}}}]")
    assert "bundles[0].import_timeout must be " in line


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/dags.git", "ssh://git@example.org/dags.git", "git@example.org:team/dags.git",
        "git://example.org/dags", "file:///srv/dags.git", "/srv/my dags.git",
    ],
)  # fmt: skip
def test_a_bundle_may_be_a_git_repository(url: str) -> None:
    (bundle,) = load(f"bundles: [{{name: a, git: '{url}', ref: release/1.x, path: jobs}}]").bundles
    assert (bundle.git, bundle.ref, bundle.path) == (url, "release/1.x", "jobs")
    (bundle,) = load(f"bundles: [{{name: a, git: '{url}'}}]").bundles
    assert (bundle.ref, bundle.path) == ("HEAD", ".")


@pytest.mark.parametrize(
    "url",
    [
        "ext::sh -c touch% /tmp/x", "fd::17", "--upload-pack=touch x", "ftp://u:hunter2@example.org/x", "https://",
        "ssh://-oProxyCommand=x/y", "https://u:hunter2@example.org/\\n",
    ],
)  # fmt: skip
def test_another_transport_is_refused_without_showing_the_address(url: str) -> None:
    (line,) = wrong(f'bundles: [{{name: a, git: "{url}"}}]')
    assert line == (
        "manager.yaml, line 1: bundles[0].git must be a git repository: https://, http://, ssh://, git://, file://, "
        "user@host:path or a local path"
    )


def test_a_parser_of_an_installed_package_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    about = Path("site/nightly-1.dist-info")
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nightly\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[backfill_manager.bundle_parsers]\nnightly = nightly:Nightly\n")
    monkeypatch.syspath_prepend("site")
    assert load("bundles: [{name: a, path: b, parser: nightly}]").bundles[0].parser == "nightly"
    (line,) = wrong("bundles: [{name: a, path: b, parser: nightl}]")
    assert "must be 'standard', 'single_pass', 'event' or 'nightly', not 'nightl'; did you mean 'nightly'?" in line


def test_the_example_configuration_is_right_with_all_that_it_shows_as_comments() -> None:
    text = (Path(__file__).parents[1] / "conf" / "manager.yaml").read_text()
    assert [bundle.name for bundle in load(text).bundles] == ["examples"]
    shown = re.sub(r"^(\s*)# (?=[ \w]+:|- )", r"\1", text.split("\n\n", 1)[1], flags=re.MULTILINE)
    settings = load(shown)
    assert [bundle.name for bundle in settings.bundles] == ["examples", "team", "release"]
    assert (settings.bundles[1].ref, settings.bundles[2].path) == (
        "main",
        os.path.abspath("../dist/dags-1.0-py3-none-any.whl"),
    )


def test_the_bundles_in_the_documentation_are_right() -> None:
    page = (Path(__file__).parents[1] / "docs" / "bundles.md").read_text(encoding="utf-8")
    sources, packages = re.findall(r"```yaml\n(bundles:.+?)```", page, re.DOTALL)
    assert [bundle.name for bundle in load(sources).bundles] == ["examples", "team", "release"]
    assert [bundle.name for bundle in load(packages).bundles] == ["reports", "models"]
