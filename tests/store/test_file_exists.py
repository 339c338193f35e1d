"""Files and folders in an object store, and a store that does not answer."""

from __future__ import annotations

import httpx
import pytest
from support.s3_server import BUCKET
from support.state_changes import unique

from backfill_manager.store.data_tables.file_exists import file_exists


def test_files_and_folders_in_a_bucket(s3: str) -> None:
    folder = unique("in")
    assert not file_exists(f"s3://{BUCKET}/{folder}/2024-01-02/_SUCCESS")
    httpx.put(f"{s3}/{BUCKET}/{folder}/2024-01-02/_SUCCESS", content=b"").raise_for_status()
    for there in ("2024-01-02/_SUCCESS", "2024-01-02", "2024-01-02/"):
        assert file_exists(f"s3://{BUCKET}/{folder}/{there}") and file_exists(f"s3a://{BUCKET}/{folder}/{there}")
    for missing in ("2024-01-02/_SUCC", "2024-01-0", "2024-01-03/_SUCCESS"):
        assert not file_exists(f"s3://{BUCKET}/{folder}/{missing}")


def test_a_bucket_or_a_store_that_is_not_there_can_not_say(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError):
        file_exists("s3://another-bucket/x/_SUCCESS")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError):
        file_exists(f"s3://{BUCKET}/x/_SUCCESS")
