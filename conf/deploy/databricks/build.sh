#!/usr/bin/env bash
# Builds the package for a runtime that has Spark and Delta already: without its requirements of pyspark and delta-spark, which pip
# would put beside the runtime's own. The wheel lies in dist/ then.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
repository=$(cd "$here/../../.." && pwd -P)
dist=${1:-$here/dist}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cp -R "$repository"/{setup.cfg,pyproject.toml,README.md,LICENSE,backfill_manager} "$scratch"
grep -vE '^ +(pyspark|delta-spark)==' "$repository/setup.cfg" >"$scratch/setup.cfg"
printf '\n[egg_info]\ntag_build = +databricks\n' >>"$scratch/setup.cfg"
mkdir -p "$dist"
rm -f "$dist"/backfill_manager-*.whl
"${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$dist" "$scratch"
