"""What a site has in Spark's conf folder: `spark-defaults.conf` and its settings of logs.

spark-submit reads both itself. What it does not do: add the values of lists to ours, which else take their place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

EXTENSIONS: Final = "spark.sql.extensions"
JARS: Final = "spark.jars"
LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")  # of Spark and its libraries
_LISTS: Final = (EXTENSIONS, JARS)
_DEFINITION: Final = re.compile(r"^[ \t]*([^\s#!=:][^\s=:]*)(?:[ \t]*[=:][ \t]*|[ \t]+)(.*?)\s*$", re.MULTILINE)


def with_site_lists(conf: Mapping[str, str], properties_file: str | None = None) -> dict[str, str]:
    """These settings, and the lists that they do not set of `spark-defaults.conf`; of `properties_file`, if spark-submit is given
    one."""
    folder = _conf_folder(os.environ)
    file = Path(properties_file) if properties_file else folder and folder / "spark-defaults.conf"
    text = file.read_text(encoding="utf-8") if file and file.is_file() else ""
    defaults = dict(_DEFINITION.findall(re.sub(r"\\\n[ \t]*", "", text)))
    return {**{name: defaults[name] for name in _LISTS if name in defaults}, **conf}


def jvm_log_option(environ: Mapping[str, str]) -> str:
    """For `SPARK_SUBMIT_OPTS`: our settings of logs, if the site has none of its own."""
    folder = _conf_folder(environ)
    return "" if folder and any(folder.glob("log4j2.*")) else f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"


def _conf_folder(environ: Mapping[str, str]) -> Path | None:
    if folder := environ.get("SPARK_CONF_DIR"):
        return Path(folder)
    home = environ.get("SPARK_HOME")
    return Path(home) / "conf" if home else None
