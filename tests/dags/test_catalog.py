"""What `DagCatalog` does beside applying submissions."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from support.bundle_folder import BundleFolder

from backfill_manager.dags.catalog import DagCatalog
from backfill_manager.errors import NotFound, Refused

AT = datetime(2024, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def catalog() -> DagCatalog:
    return DagCatalog()


def test_the_last_good_version_is_what_is_read(bundle: BundleFolder, catalog: DagCatalog) -> None:
    store = catalog
    bundle.write_dag("f.py", "d")
    store.submit(bundle.scan(), AT)
    bundle.write("f.py", "from backfill_manager import dag\nnot python")
    taken = store.submit(bundle.scan(), AT)
    assert [problem.file for problem in taken.errors] == ["f.py"]
    spec, version = store.read("d")
    assert (spec.dag_id, version.version) == ("d", 1)
    with pytest.raises(NotFound, match="'e'"):
        store.read("e")


def test_the_result_of_a_submission_is_reported_dag_by_dag(bundle: BundleFolder, catalog: DagCatalog) -> None:
    store = catalog
    bundle.write_dag("f.py", "one", "two")
    assert [(c.dag_id, c.change) for c in store.submit(bundle.scan(), AT).changes] == [("one", "new"), ("two", "new")]
    assert store.submit(bundle.scan(), AT).changes == ()
    bundle.write_dag("f.py", "one")
    message = {c.dag_id: c.change for c in store.submit(bundle.scan(), AT).changes}
    assert message == {"one": "changed", "two": "deactivated"}
    (bundle.root / "f.py").rename(bundle.root / "g.py")
    bundle.write_dag("h.py", "two")
    message = {c.dag_id: c.change for c in store.submit(bundle.scan(), AT).changes}
    assert message == {"one": "moved", "two": "back"}


def test_the_dags_of_a_bundle_that_is_configured_no_more_become_inactive(
    bundle: BundleFolder, catalog: DagCatalog
) -> None:
    store = catalog
    bundle.write_dag("f.py", "d")
    bundle.write("g.py", "from backfill_manager import dag\n1 / 0")
    store.submit(bundle.scan(), AT)
    assert store.keep_bundles(["b", "c"], AT) == ()
    assert store.keep_bundles(["c"], AT) == ("d",)
    assert not catalog.dags["d"].is_active and not catalog.problems, "none that is over stays in memory"
    store.submit(bundle.scan(), AT)
    assert catalog.dags["d"].is_active and catalog.dags["d"].current_version == 1


def test_only_a_dag_that_there_is_can_be_deactivated(catalog: DagCatalog) -> None:
    with pytest.raises(NotFound):
        catalog.deactivate_dag("d", by="ada", at=AT)


def test_only_a_path_that_a_dag_comes_from_can_be_deactivated(bundle: BundleFolder, catalog: DagCatalog) -> None:
    bundle.write_dag("sub/f.py", "d")
    catalog.submit(bundle.scan(), AT)
    with pytest.raises(Refused, match="No DAG comes from 'nothere' of the bundle 'b'"):
        catalog.deactivate_subpath("b", "nothere", by="ada", at=AT)
    assert catalog.deactivate_subpath("b", "sub", by="ada", at=AT) == ("d",)
    assert catalog.deactivate_subpath("b", "sub/f.py", by="ada", at=AT) == ()  # again
