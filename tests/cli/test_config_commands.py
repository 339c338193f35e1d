"""`bfm config`: what is configured, from where, and what looks like a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from support.bfm import Bfm


def test_the_configuration_is_shown_with_secrets_masked(bfm: Bfm, tmp_path: Path) -> None:
    digest = "ab" * 32
    (tmp_path / "m.yaml").write_text(
        f"api:\n  session_secret: verysecret{digest}\n  tokens:\n  - {{name: ci, sha256: {digest}, role: operator}}\n"
        "bundles: [{name: team, git: 'https://verysecret@example.com/dags.git'}]\n"
        "spark:\n  conf:\n    spark.hadoop.fs.s3a.secret.key: verysecret\n    spark.executor.cores: 2\n"
    )

    for form in ("table", "json", "yaml"):
        result = bfm("--conf", "m.yaml", "config", "show", "--output", form)
        assert result.code == 0
        assert "verysecret" not in result.out
        assert digest not in result.out
    shown = yaml.safe_load(result.out)
    assert shown["spark"]["conf"]["spark.executor.cores"] == "2"
    assert shown["api"]["tokens"][0]["name"] == "ci"


def test_config_check_tells_where_the_settings_come_from(bfm: Bfm, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("lease: {seconds: 20}\n")

    result = bfm("--conf", "m.yaml", "config", "check", "--output", "json", environ={"BFM_STATE": "x"})

    assert result.document == {"ok": True, "sources": ["defaults", "m.yaml", "environment (BFM_STATE)"], "warnings": []}
    others = {"BFM_STAET": "x", "BFM_CACHE": "x", "BFM_LEASE__SECONDS": "20"}  # the first two set nothing here
    sources = bfm("--conf", "m.yaml", "config", "check", "--output", "json", environ=others).document["sources"]
    assert sources == ["defaults", "m.yaml", "environment (BFM_LEASE__SECONDS)"]
    (tmp_path / "m.yaml").write_text("lease: {secconds: 20}\n")
    wrong = bfm("--conf", "m.yaml", "config", "check")
    assert wrong.code == 2
    assert "line 1" in wrong.err
    assert "did you mean 'seconds'" in wrong.err


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("BFM_STAET", "BFM_STATE"),
        ("BFM_WAREHOUS", "BFM_WAREHOUSE"),
        ("BFM_SEVER", "BFM_SERVER"),
        ("BFM_LEASE_SECONDS", "BFM_LEASE__SECONDS"),
        ("BFM_POOLS_BACKFILL_SLOTS", "BFM_POOLS__BACKFILL__SLOTS"),
    ],
)
def test_a_variable_with_nearly_the_name_of_a_setting_is_a_warning(
    bfm: Bfm, tmp_path: Path, variable: str, meant: str
) -> None:
    warning = f"environment, {variable}: it sets nothing; did you mean '{meant}'?"

    checked = bfm("config", "check", "--output", "json", environ={variable: "x"})
    assert (checked.code, checked.document["warnings"]) == (0, [warning])
    assert warning in checked.err
    (tmp_path / "file").write_text("")
    started = bfm("--state", str(tmp_path / "file" / "state"), "manager", "start", environ={variable: "x"})
    assert warning in started.err


def test_variables_for_other_purposes_are_no_warnings(bfm: Bfm) -> None:
    others = ("CACHE", "TOKEN", "TOKEN_FILE", "TIMEZONE", "IVY_SETTINGS", "SECRET_STATE", "SLACK_URL", "TASK_ID")
    environ = {f"BFM_{name}": "UTC" for name in others}
    checked = bfm("config", "check", "--output", "json", environ=environ)
    assert (checked.document["warnings"], checked.err) == ([], "")
