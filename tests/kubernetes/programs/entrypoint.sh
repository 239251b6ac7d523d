#!/bin/bash
# The part of a Spark image that Spark's backend for Kubernetes starts: `driver ..` or `executor ..`.
set -eu
export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-$POD_IP}
role=$1
shift
if [ "$role" = driver ]; then
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
fi
options=()
while IFS= read -r name; do options+=("${!name}"); done < <(compgen -v SPARK_JAVA_OPT_)
exec java ${options[@]+"${options[@]}"} "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$SPARK_CONF_DIR:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
