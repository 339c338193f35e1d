"""Whether something lies at a path or URI, by the client of the tables' storage, with its credentials."""

from __future__ import annotations

import os

from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from backfill_manager.store.data_tables.table_log import plain_location
from backfill_manager.store.delta_rs.tables import UNUSABLE, is_engine_error


def file_exists(path: str) -> bool:
    """A file or folder; in an object store a folder is there if anything lies below it. `OSError` when that can't be said."""
    location = plain_location(path)
    if "://" not in location:
        return _exists_here(location)
    if UNUSABLE.search(location):
        raise OSError("its path has characters that delta-rs does not take")
    folder, _, name = location.rstrip("/").rpartition("/")
    try:
        found = fs.PyFileSystem(DeltaStorageHandler(folder)).get_file_info(name)
    except Exception as error:
        if isinstance(error, OSError) or not is_engine_error(error):
            raise
        raise OSError(str(error)) from error
    return bool(found.type != fs.FileType.NotFound)


def _exists_here(path: str) -> bool:
    """`Path.exists` takes a folder that may not be read for one without the file."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
