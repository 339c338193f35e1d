#!/usr/bin/env bash
# A container's program: `bfm` with the container's arguments; for `executor`, which Spark on Kubernetes gives to its executors,
# Spark's executor as Spark's variables describe it.
set -euo pipefail

if [ "${1:-}" != executor ]; then
    exec bfm "$@"
fi

java_options=()
name=SPARK_JAVA_OPT_0
while [ -n "${!name+set}" ]; do
    java_options+=("${!name}")
    name=SPARK_JAVA_OPT_${#java_options[@]}
done
java=java
[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java

exec "$java" ${java_options[@]+"${java_options[@]}"} "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
