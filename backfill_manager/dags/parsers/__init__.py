"""When which files of a bundle are read, how they become DAGs, and what is submitted of them: standard, single pass, event,
and other people's, who find here what they need (docs/bundles.md)."""

from backfill_manager.dags.importing.dag_file import DagFile
from backfill_manager.dags.parsers.builtin import StandardBundleParser
from backfill_manager.dags.parsers.bundle_state import Fetched, ParserOptions
from backfill_manager.dags.parsers.parser import BundleParser, Changes
from backfill_manager.dags.versions import Submission

__all__ = ["BundleParser", "Changes", "DagFile", "Fetched", "ParserOptions", "StandardBundleParser", "Submission"]
