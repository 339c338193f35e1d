#!/usr/bin/env bash
# Makes what is missing, then starts the manager through the real spark-submit. `./spark-submit.sh --help` tells how.
set -euo pipefail

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
. "$folder/conf/bootstrap.sh"

usage() {
    cat <<'END'
./spark-submit.sh                            start the manager with the web pages (http://127.0.0.1:8099) and stay
                                             (Ctrl-C lets what runs finish, and stops)
./spark-submit.sh start [options]            start the manager with options of `bfm manager start`
./spark-submit.sh demo [--year]              backfill January (or all) of 2013 over real flights, and show what came out
./spark-submit.sh [...] -- OPTIONS           hand OPTIONS to spark-submit, such as --master spark://host:7077
./spark-submit.sh --help

The first start makes .venv beside this file and fetches what is needed; later ones take no network. State and tables lie
in ./state and ./warehouse of this folder, unless BFM_STATE, BFM_WAREHOUSE or conf/manager.yaml (BFM_CONF) say otherwise;
relative paths in variables and options begin where you are, those in the file at its folder. Every other setting has a
variable too, such as BFM_LEASE__SECONDS.
Needs Python 3.10 or newer (PYTHON=... names one) and Java 17 or newer (JAVA_HOME).
END
}

case "${1:-start}" in
    -h | --help | help) usage; exit 0 ;;
    start | demo | --) ;;
    *) printf 'spark-submit.sh does not know %s.\n\n' "$1" >&2; usage >&2; exit 2 ;;
esac

require_java
(cd "$folder" && install_extra demo) || exit $?
exec "$folder/.venv/bin/python" "$folder/jobs/submit.py" "$@"
