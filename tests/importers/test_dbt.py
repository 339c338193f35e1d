"""dbt projects as drafts, from their files and from a manifest."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from backfill_manager.errors import InvalidInput
from backfill_manager.importers.dbt.drafts import drafts
from backfill_manager.importers.dbt.project import read_project
from backfill_manager.importers.writer import write
from backfill_manager.testing import load_file

FILES = {
    "dbt_project.yml": """
        name: shop
        vars: {currency: EUR}
        models:
          shop:
            +materialized: table
            staging: {+materialized: view}
    """,
    "macros/money.sql": "{% macro cents(column) %}({{ column }} / 100){% endmacro %}",
    "models/schema.yml": """
        sources:
          - name: raw
            schema: bronze
            tables: [{name: orders}, {name: rates, identifier: fx}]
        models:
          - name: orders
            description: Orders
            columns:
              - name: id
                tests: [unique, not_null]
              - name: state
                tests:
                  - accepted_values: {values: [new, "it's"]}
                  - relationships: {to: ref('states'), field: state}
          - name: stg_orders
            columns: [{name: id, tests: [not_null]}]
    """,
    "models/staging/stg_orders.sql": "SELECT id, {{ cents('total') }} AS total, at FROM {{ source('raw', 'orders') }}",
    "models/orders.sql": """
        {{ config(tags=['mart']) }}
        SELECT o.*, '{{ var("currency") }}' AS currency
        FROM {{ ref('stg_orders') }} o JOIN {{ source('raw', 'rates') }} USING (id);
    """,
    "models/daily.sql": """
        {{ config(materialized='incremental', event_time='at', schema='mart') }}
        SELECT * FROM {{ ref('orders') }}
        {% if is_incremental() %} WHERE at > (SELECT max(at) FROM {{ this }}) {% endif %}
    """,
    "models/latest.sql": "{{ config(materialized='incremental', unique_key='id') }} SELECT * FROM {{ ref('orders') }}",
    "models/odd.sql": "SELECT {{ dbt_utils.star(ref('orders')) }} FROM {{ ref('orders') }}",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "shop" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        file.write_text("\n".join(line[indent:] for line in lines))
    return tmp_path / "shop"


def test_a_project_without_a_manifest(project: Path, tmp_path: Path) -> None:
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    spec = dag.spec
    assert (name, spec.dag_id) == ("shop.py", "shop")
    assert {task.task_id: task.upstream for task in spec.tasks} == {
        "stg_orders": (), "orders": ("stg_orders",), "daily": ("orders",), "latest": ("orders",), "odd": ("orders",)
    }  # fmt: skip
    assert {read.table for read in spec.reads} == {"bronze.orders", "bronze.fx"}
    assert set(spec.writes) == {"stg_orders", "orders", "mart.daily", "latest", "odd"}
    view, orders, daily, latest = (spec.task(one) for one in ("stg_orders", "orders", "daily", "latest"))
    assert view.sql == "CREATE OR REPLACE VIEW stg_orders AS\nSELECT id, (total / 100) AS total, at FROM bronze.orders"
    assert (
        orders.sql is not None
        and orders.sql.endswith("FROM stg_orders o JOIN bronze.fx USING (id)")
        and "'EUR'" in orders.sql
    )
    assert (orders.into, orders.mode) == ("orders", "overwrite")
    assert [check.condition for check in orders.checks] == [
        "unique(id)", "no nulls in id", "state IS NULL OR state IN ('new', 'it\\'s')"
    ]  # fmt: skip
    assert (daily.into, daily.time_column, daily.mode) == ("mart.daily", "at", "replace")
    assert daily.sql is not None and ":interval_start" in daily.sql and "max(at)" not in daily.sql
    assert (latest.into, latest.merge_on, latest.sql) == ("latest", ("id",), "SELECT * FROM orders")
    what = [remark.what for remark in draft.remarks]
    assert "models/orders.sql: the test relationships of state" in what
    assert "models/staging/stg_orders.sql: the test not_null of id" in what
    assert "models/daily.sql: is_incremental()" in what and "models/latest.sql: incremental by unique_key" in what
    assert [one for one in what if "its Jinja" in one] == ["models/odd.sql: its Jinja: 'dbt_utils' is undefined"]


def test_a_model_that_is_written_as_a_whole_is_not_appended(project: Path, tmp_path: Path) -> None:
    """Its `is_incremental()` is taken as false, so each run has all of its rows."""
    only_new = "{% if is_incremental() %} WHERE at > (SELECT max(at) FROM {{ this }}) {% endif %}"
    by = "config(materialized='incremental', incremental_strategy='insert_overwrite', partition_by=['day'])"
    (project / "models" / "whole.sql").write_text(f"{{{{ {by} }}}} SELECT * FROM {{{{ ref('orders') }}}} {only_new}")
    (project / "models" / "log.sql").write_text(
        "{{ config(materialized='incremental') }} SELECT current_timestamp() AS at"
    )
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    assert (dag.spec.task("whole").mode, dag.spec.task("log").mode) == ("overwrite", "append")


def test_the_schema_of_a_view_is_made_as_by_dbt(project: Path) -> None:
    (project / "models/staging/named.sql").write_text("{{ config(schema='staging area') }} SELECT 1 AS one")
    [(_, draft)] = drafts(read_project(project))
    assert "CREATE SCHEMA IF NOT EXISTS `staging area`;\nCREATE OR REPLACE VIEW `staging area`.named AS\n" in write(
        draft
    )


def test_the_batches_of_a_microbatch_are_the_intervals_of_the_dag(project: Path, tmp_path: Path) -> None:
    by_day = "materialized='incremental', incremental_strategy='microbatch', event_time='at', batch_size='day'"
    for name, begin in {"visits": "2025-01-01", "clicks": "2024-12-01"}.items():
        file = project / "models" / f"{name}.sql"
        file.write_text(f"{{{{ config({by_day}, begin='{begin}') }}}} SELECT * FROM {{{{ ref('orders') }}}}")
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    assert (dag.spec.schedule, f"{dag.spec.start_date:%Y-%m-%d}") == ("@daily", "2024-12-01")
    assert "no schedule is known" not in [remark.what for remark in draft.remarks]


def test_what_dbt_would_not_run_or_only_warn_of_is_no_task_and_no_failure(project: Path, tmp_path: Path) -> None:
    (project / "models" / "off.sql").write_text("{{ config(enabled=false) }} SELECT 1")
    (project / "models" / "old").mkdir()
    (project / "models" / "old" / "off_too.sql").write_text("SELECT 1")
    with (project / "dbt_project.yml").open("a") as file:
        file.write("\n    old: {enabled: false}\n    on: {+enabled: false}")
    (project / "models" / "more.yml").write_text(
        """
models:
  - name: latest
    columns:
      - name: id
        tests:
          - unique: {config: {severity: warn}}
          - not_null: {where: at > '2025-01-01'}
"""
    )
    for place in ("tests/no_loss.sql", "tests/generic/even.sql", "seeds/cities.csv", "snapshots/history.sql"):
        (project / place).parent.mkdir(parents=True, exist_ok=True)
        (project / place).write_text("SELECT 1")
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    assert not {"off", "off_too"} & {task.task_id for task in dag.spec.tasks}
    checks = dag.spec.task("latest").checks
    assert [(check.condition, check.on_failure) for check in checks] == [("unique(id)", "warn")]
    what = [remark.what for remark in draft.remarks]
    assert "models/latest.sql: the test not_null of id with where" in what
    assert [one for one in what if one.startswith("the ")] == [
        "the seed cities",
        "the snapshot history",
        "the test no_loss",
    ]


def test_variables_of_the_project_itself_come_before_those_of_all(project: Path) -> None:
    file = project / "dbt_project.yml"
    file.write_text(file.read_text().replace("{currency: EUR}", "{currency: EUR, shop: {currency: CHF, since: 2020}}"))
    (project / "models" / "since.sql").write_text("SELECT {{ var('since', 1970) }} AS y, {{ var('none', none) }} AS z")
    models = read_project(project).models
    assert "'CHF' AS currency" in models["orders"].sql
    assert (models["since"].sql, models["since"].remarks) == ("SELECT 2020 AS y, None AS z", [])


def test_what_depends_on_the_target_is_remarked(project: Path) -> None:
    file = project / "models" / "orders.sql"
    file.write_text(
        f"{file.read_text().replace(';', '')}\n{{% if target.name == 'dev' %}} WHERE at > current_date - 3 {{% endif %}}"
    )
    orders = read_project(project).models["orders"]
    assert "current_date" not in orders.sql
    assert "models/orders.sql: target" in [remark.what for remark in orders.remarks]


def test_jinja_in_yaml_files_is_rendered(project: Path) -> None:
    file = project / "models" / "schema.yml"
    text = file.read_text().replace("schema: bronze", """schema: "{{ var('raw', 'landing') }}\"""")
    text = text.replace("identifier: fx", """identifier: "{{ target.name }}_fx\"""")
    tests = "    tests: [{dbt_utils.unique_combination_of_columns: {combination_of_columns: [id, at]}}]\n"
    file.write_text(text.replace("    description: Orders\n", f"    description: Orders\n{tests}"))
    settings = project / "dbt_project.yml"
    settings.write_text(
        f"{settings.read_text()}\n        odd: {{+enabled: \"{{{{ var('odd', false) }}}}\"}}\n".replace(
            "        odd", "    odd"
        )
    )
    found = read_project(project)
    assert found.models["orders"].sources == ["landing.prod_fx"] and '"unique(id, at)"' in found.models["orders"].checks
    assert found.models["stg_orders"].sources == ["landing.orders"] and "odd" not in found.models
    assert [one.what for one in found.remarks] == ["`{{ target.name }}_fx` in a YAML file"]


def test_settings_of_folders_count_from_the_folder_of_models(project: Path) -> None:
    (project / "dbt").mkdir()
    (project / "models").rename(project / "dbt" / "models")
    file = project / "dbt_project.yml"
    file.write_text(f"{file.read_text()}\nmodel-paths: [dbt/models]\n")
    assert read_project(project).models["stg_orders"].materialized == "view"


def test_versions_of_a_model_are_models_of_their_own(project: Path, tmp_path: Path) -> None:
    def node(name: str, code: str, upstream: list[str], **more: object) -> dict[str, object]:
        about = {"resource_type": "model", "name": name, "package_name": "shop", "config": {"materialized": "table"}}
        return {**about, "schema": "mart", "raw_code": code, "depends_on": {"nodes": upstream}, **more}

    of_dim = {"package_name": "shop", "latest_version": 2}
    first, second = "model.shop.dim.v1", "model.shop.dim.v2"
    nodes = {
        first: node("dim", "SELECT 1 AS n", [], version=1, alias="dim_v1", **of_dim),
        second: node("dim", "SELECT 2 AS n", [], version=2, alias="dim_v2", **of_dim),
        "model.shop.old": node("old", "SELECT * FROM {{ ref('dim', v=1) }}", [first]),
        "model.shop.new": node("new", "SELECT * FROM {{ ref('shop', 'dim') }}", [second]),
        "model.base.new": node("new", "SELECT 3 AS n", [], package_name="base", schema="base"),
        "model.shop.both": node(
            "both", "SELECT * FROM {{ ref('new') }} JOIN {{ ref('base', 'new') }}", ["model.shop.new", "model.base.new"]
        ),
        "test.shop.t": {
            "resource_type": "test", "name": "t", "attached_node": first, "column_name": "n", "test_metadata": {"name": "unique"},
        },
    }  # fmt: skip
    (project / "target").mkdir()
    (project / "target" / "manifest.json").write_text(json.dumps({"nodes": nodes, "sources": {}}))
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    assert {one.task_id: (one.into, set(one.upstream)) for one in dag.spec.tasks} == {
        "dim_v1": ("mart.dim_v1", set()), "dim_v2": ("mart.dim_v2", set()), "old": ("mart.old", {"dim_v1"}),
        "new": ("mart.new", {"dim_v2"}), "base__new": ("base.new", set()), "both": ("mart.both", {"new", "base__new"}),
    }  # fmt: skip
    sql = {one.task_id: one.sql for one in dag.spec.tasks}
    assert (sql["old"], sql["new"]) == ("SELECT * FROM mart.dim_v1", "SELECT * FROM mart.dim_v2")
    assert sql["both"] == "SELECT * FROM mart.new JOIN base.new"
    assert [check.condition for check in dag.spec.task("dim_v1").checks] == ["unique(n)"]


def test_a_dag_for_each_tag(project: Path) -> None:
    assert [name for name, _ in drafts(read_project(project), by_tag=True)] == ["shop.py", "mart.py"]


def test_what_a_model_needs_of_another_dag_is_read_and_remarked(project: Path, tmp_path: Path) -> None:
    made = dict(drafts(read_project(project), by_tag=True))
    mart = made["mart.py"]
    assert "models/orders.sql: needs stg_orders, of another DAG" in [remark.what for remark in mart.remarks]
    (tmp_path / "mart.py").write_text(write(mart))
    [dag] = load_file(tmp_path / "mart.py")
    assert {read.table for read in dag.spec.reads} == {"bronze.fx", "stg_orders"}


def test_a_manifest_is_taken_first(project: Path, tmp_path: Path) -> None:
    model = {"resource_type": "model", "schema": "mart", "config": {"materialized": "table"}, "language": "sql"}
    nodes = {
        "model.shop.a": model
        | {"name": "a", "raw_code": "SELECT * FROM {{ source('raw', 'x') }}"} | {"depends_on": {"nodes": ["source.shop.raw.x"]}},
        "model.shop.b": model
        | {"name": "b", "raw_code": "SELECT {{ f() }} FROM {{ ref('a') }}", "compiled_code": "SELECT 1 FROM mart.a"}
        | {"depends_on": {"nodes": ["model.shop.a"]}},
        "test.shop.t": {
            "resource_type": "test", "name": "t", "attached_node": "model.shop.b", "column_name": "id",
            "test_metadata": {"name": "unique", "kwargs": {"column_name": "id"}},
            "config": {"severity": "WARN", "where": None, "error_if": "!= 0", "warn_if": "!= 0"},
        },
        "seed.shop.s": {"resource_type": "seed", "name": "s", "schema": "mart"},
    }  # fmt: skip
    sources = {"source.shop.raw.x": {"source_name": "raw", "name": "x", "identifier": "x", "schema": "bronze"}}
    (project / "target").mkdir()
    (project / "target" / "manifest.json").write_text(json.dumps({"nodes": nodes, "sources": sources}))
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    a, b = dag.spec.tasks
    assert (a.sql, a.into, b.sql, b.upstream) == ("SELECT * FROM bronze.x", "mart.a", "SELECT 1 FROM mart.a", ("a",))
    assert [(check.condition, check.on_failure) for check in b.checks] == [("unique(id)", "warn")]
    assert "the seed s" in [remark.what for remark in draft.remarks]


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for a in range(100000000) %}x{% endfor %}",
        "{% include '/etc/passwd' %}",
        "{{ env_var('HOME') }}",
    ],
)
def test_the_jinja_of_a_model_reaches_nothing(project: Path, text: str) -> None:
    (project / "models" / "bad.sql").write_text(text)
    model = read_project(project).models["bad"]
    assert [remark for remark in model.remarks if "its Jinja" in remark.what] and "assert_true(false" in model.sql


def test_what_is_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is no dbt project: it has no dbt_project\.yml"):
        read_project(tmp_path)


def test_models_in_a_circle_are_refused(project: Path) -> None:
    (project / "models" / "x.sql").write_text("SELECT * FROM {{ ref('y') }}")
    (project / "models" / "y.sql").write_text("SELECT * FROM {{ ref('x') }}")
    with pytest.raises(InvalidInput, match="x -> y -> x refer to each other in a circle"):
        list(drafts(read_project(project)))


def remarks_of(folder: Path) -> dict[str, str]:
    return {one.what: one.instead for _, draft in drafts(read_project(folder)) for one in draft.remarks}


def test_a_manifest_that_is_older_than_the_models_is_said(project: Path) -> None:
    manifest = project / "target" / "manifest.json"
    manifest.parent.mkdir()
    node = {"resource_type": "model", "name": "orders", "package_name": "shop", "raw_code": "SELECT 1", "config": {}}
    manifest.write_text(json.dumps({"nodes": {"model.shop.orders": node}}))
    now = manifest.stat().st_mtime
    for path in project.rglob("*.*"):
        os.utime(path, (now - 60, now - 60))
    os.utime(manifest, (now, now))
    assert not [what for what in remarks_of(project) if "manifest" in what]
    for name in ("models/orders.sql", "macros/money.sql"):
        os.utime(project / name, (now + 1, now + 1))
    instead = "The draft is of then: run `dbt parse`, or delete it, and import again"
    assert remarks_of(project)["target/manifest.json is older than macros/money.sql and 1 other file"] == instead


def test_models_read_tables_of_seeds_and_snapshots(project: Path, tmp_path: Path) -> None:
    (project / "seeds").mkdir()
    (project / "seeds" / "cities.csv").write_text("id,name\n")
    (project / "snapshots").mkdir()
    (project / "snapshots" / "all.sql").write_text(
        "{% snapshot clients %}{{ config(target_schema='snap', unique_key='id') }} SELECT 1 {% endsnapshot %}"
    )
    (project / "snapshots" / "more.yml").write_text("snapshots: [{name: shops, config: {schema: snap}}]\n")
    text = (
        "SELECT * FROM {{ ref('cities') }} JOIN {{ ref('clients') }} JOIN {{ ref('shops') }} JOIN {{ ref('orders') }}"
    )
    (project / "models" / "joined.sql").write_text(text)
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    task = dag.spec.task("joined")
    assert task.upstream == ("orders",)
    assert task.sql is not None and "FROM cities JOIN snap.clients JOIN snap.shops JOIN orders" in task.sql
    assert {read.table for read in dag.spec.reads} >= {"cities", "snap.clients", "snap.shops"}


def test_what_dbt_asks_the_warehouse_is_never_left_out_in_silence(project: Path) -> None:
    (project / "models" / "pivot.sql").write_text(
        "{% set kinds = run_query('SELECT 1') if execute else [] %} SELECT {% for k in kinds %}{{ k }},{% endfor %} 1"
    )
    assert "models/pivot.sql: its Jinja: 'run_query' is undefined" in remarks_of(project)


def test_what_a_draft_leaves_out_of_a_project_is_said(project: Path, tmp_path: Path) -> None:
    (project / "models" / "sources.yml").write_text(
        """
sources:
  - name: crm
    tables:
      - {name: people, freshness: {warn_after: {count: 1, period: day}}}
      - {name: visits, columns: [{name: id, tests: [unique]}]}
"""
    )
    (project / "models" / "visits.sql").write_text(
        "{{ config(materialized='incremental', incremental_strategy='microbatch', event_time='at', batch_size='day', "
        "begin='2025-01-01', lookback=3, partition_by=['at'], on_schema_change='append_new_columns') }} SELECT 1 AS at"
    )
    [(name, draft)] = drafts(read_project(project))
    (tmp_path / name).write_text(write(draft))
    [dag] = load_file(tmp_path / name)
    assert dag.spec.task("visits").schema == "merge"
    assert {remark.what for remark in draft.remarks} >= {
        "freshness of the source crm.people", "tests of the source crm.visits", "models/visits.sql: partition_by",
        "models/visits.sql: lookback=3, of batches that are done again",
    }  # fmt: skip


def test_tests_and_freshness_of_sources_in_a_manifest_are_said(project: Path) -> None:
    source = {"source_name": "raw", "name": "orders", "schema": "bronze", "freshness": {"warn_after": {"count": 1}}}
    model = {"resource_type": "model", "name": "orders", "package_name": "shop", "raw_code": "SELECT 1", "config": {}}
    test = {
        "resource_type": "test", "name": "source_unique_raw_orders_id", "package_name": "shop", "column_name": "id",
        "depends_on": {"nodes": ["source.shop.raw.orders"]}, "test_metadata": {"name": "unique", "kwargs": {}},
    }  # fmt: skip
    nodes = {"model.shop.orders": model, "test.shop.one": test}
    (project / "target").mkdir()
    document = {"nodes": nodes, "sources": {"source.shop.raw.orders": source}}
    (project / "target" / "manifest.json").write_text(json.dumps(document))
    what = remarks_of(project)
    assert "the test source_unique_raw_orders_id, of no model here" in what
    assert "freshness of the source bronze.orders" in what


def test_what_a_project_runs_before_and_after_all_models_is_said(project: Path) -> None:
    with (project / "dbt_project.yml").open("a") as file:
        file.write("on-run-start: SET x = 1\non-run-end: ['GRANT SELECT ON SCHEMA shop TO readers']\n")
    hooks = {f"on-run-{when} of the project": f"Write it as a SQL task {place} all others"
             for when, place in (("start", "before"), ("end", "after"))}  # fmt: skip
    assert hooks.items() <= remarks_of(project).items()
    model = {"resource_type": "model", "name": "orders", "package_name": "shop", "raw_code": "SELECT 1", "config": {}}
    (project / "target").mkdir()
    (project / "target" / "manifest.json").write_text(json.dumps({"nodes": {"model.shop.orders": model}}))
    assert hooks.items() <= remarks_of(project).items()
