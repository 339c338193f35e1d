#!/usr/bin/env bash
# Submits a manager to YARN: `submit.sh client` keeps its driver here, under a supervisor of yours; `submit.sh cluster` gives it to
# YARN. What follows are options of `bfm manager start`. Variables:
#   HADOOP_CONF_DIR    of the cluster
#   BFM_VENV           an environment with backfill_manager, here; /opt/backfill-manager/venv
#   BFM_VENV_ARCHIVE   the same, packed by `venv-pack`; a path here, or hdfs://; /opt/backfill-manager/venv.tar.gz
#   BFM_CONF           the configuration; manager.yaml beside this script
#   BFM_PRINCIPAL, BFM_KEYTAB   of Kerberos: with them Spark renews its tickets for as long as the manager runs
#   AWS_REGION, AWS_ENDPOINT_URL   of a bucket; in cluster mode its keys must come from the nodes (a role), as settings are shown
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
repository=$(cd "$here/../../.." && pwd -P)
mode=${1:-}
case $mode in
    client | cluster) shift ;;
    *)
        echo "Say where the driver runs: submit.sh client|cluster [options of bfm manager start]" >&2
        exit 2
        ;;
esac
: "${HADOOP_CONF_DIR:?names the folder with core-site.xml and yarn-site.xml of the cluster}"
venv=${BFM_VENV:-/opt/backfill-manager/venv}
archive=${BFM_VENV_ARCHIVE:-/opt/backfill-manager/venv.tar.gz}
conf=${BFM_CONF:-$here/manager.yaml}

jars=$("$venv/bin/python" -m backfill_manager.execution.spark.connectors "${BFM_WAREHOUSE:-s3a://}" | paste -sd, -)
options=(
    --master yarn --deploy-mode "$mode" --name backfill_manager
    --properties-file "$here/spark-defaults.conf" --jars "$jars" --archives "$archive#environment"
    --conf spark.pyspark.python=./environment/bin/python
)
if [ -n "${BFM_KEYTAB:-}" ]; then
    options+=(--principal "${BFM_PRINCIPAL:?of the keytab}" --keytab "$BFM_KEYTAB")
fi
if [ "$mode" = client ]; then
    export BFM_CONF=$conf
    options+=(--conf "spark.pyspark.driver.python=$venv/bin/python")
else
    # The driver starts in a folder that YARN makes, with these files in it.
    options+=(--files "$conf#manager.yaml" --conf spark.yarn.submit.waitAppCompletion=false)
    options+=(--conf spark.yarn.appMasterEnv.BFM_CONF=manager.yaml --conf spark.yarn.appMasterEnv.TZ=UTC)
    options+=(--conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python)
    options+=(--conf spark.yarn.appMasterEnv.BFM_CACHE=./cache)
    for name in AWS_REGION AWS_ENDPOINT_URL; do # not keys: settings of an application are shown in YARN's pages
        [ -z "${!name:-}" ] || options+=(--conf "spark.yarn.appMasterEnv.$name=${!name}")
    done
fi
exec "$venv/bin/spark-submit" "${options[@]}" "$repository/jobs/manager.py" "$@"
