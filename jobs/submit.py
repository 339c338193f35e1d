"""What `spark-submit.sh` does once everything is installed: read the words, then `start` a manager or run the `demo`.

Relative paths in --state, --conf, BFM_STATE, BFM_BUNDLES and the like begin where the person is; all else lies in the
repository's folder, which becomes the current one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Final

from spark_driver import HERE, Driver, spark_arguments

from backfill_manager.errors import BackfillManagerError, InvalidInput

WHAT_NOW: Final = (
    "The manager has ended with it and leads no more; start it again, or let its supervisor do so. What was asked for waits, "
    "and tasks that ran go on with the next leader."
)
MAX_BFM_EXIT_CODE: Final = 4  # the highest exit code of `bfm`
PATHS: Final = (
    "BFM_STATE", "BFM_WAREHOUSE", "BFM_SNAPSHOTS", "BFM_SECRETS__FILES", "BFM_CONF", "BFM_CACHE", "BFM_IVY_SETTINGS",
)  # fmt: skip


def main(argv: list[str]) -> int:
    words, options = argv, list[str]()
    if "--" in argv:
        at = argv.index("--")
        words, options = argv[:at], argv[at + 1 :]
    parser = argparse.ArgumentParser(prog="spark-submit.sh")
    what = parser.add_subparsers(dest="what")
    what.add_parser("start", add_help=False)
    what.add_parser("demo").add_argument("--year", action="store_true", help="all 365 days of 2013, not only January")
    asked, rest = parser.parse_known_args(words or ["start", "--with-ui"])
    if asked.what == "demo" and rest:
        parser.error(f"demo does not know {' '.join(rest)}")

    from backfill_manager.settings import load_settings
    from backfill_manager.settings.loader import STARTED_IN

    try:
        typed, rest = places_typed(rest)
        os.environ.update(typed)  # Spark's own settings are read from that configuration, too
        os.environ.update(absolute_paths(os.environ, os.getcwd()))
        os.environ[STARTED_IN] = os.getcwd()  # of paths within BFM_BUNDLES, in the driver too
        rest += [f"--{name.removeprefix('BFM_').lower()}={os.environ[name]}" for name in typed]
        os.chdir(HERE)
        settings = load_settings(None, environ=os.environ)
        if asked.what == "demo":
            import demo

            return demo.run(settings, options, year=asked.year)
        with Driver(spark_arguments(settings, options), rest) as driver:
            code = driver.wait()
            if code > MAX_BFM_EXIT_CODE and driver.signalled is None:  # the driver's last words went through the JVM
                print(f"Spark is gone: its JVM has ended with exit code {code}. {WHAT_NOW}", file=sys.stderr)
            return code
    except BackfillManagerError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def places_typed(options: list[str]) -> tuple[dict[str, str], list[str]]:
    """`--state` and `--conf` of `bfm manager start`, as the variables that mean the same; and the other options."""
    parser = argparse.ArgumentParser(prog="spark-submit.sh start", add_help=False, allow_abbrev=False)
    for name in ("state", "conf"):
        parser.add_argument(f"--{name}", dest=f"BFM_{name.upper()}")
    asked, others = parser.parse_known_args(options)
    typed = {name: value for name, value in vars(asked).items() if value is not None}
    if "" in typed.values():
        raise InvalidInput("--state and --conf must not be empty: give them a value, or leave them out.")
    return typed, others


def absolute_paths(environ: Mapping[str, str], base: str) -> dict[str, str]:
    """The variables that hold paths, with relative ones taken from `base`; URIs and `catalog.schema` stay."""
    from backfill_manager.store.uri import is_local

    return {
        name: os.path.normpath(os.path.join(base, os.path.expanduser(environ[name])))
        for name in PATHS
        if environ.get(name) and is_local(environ[name])
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
