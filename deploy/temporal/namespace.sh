#!/bin/sh
# Prepares a Temporal server for Holdfast: the namespace and its search attributes. A new namespace keeps closed
# executions for RETENTION, 30d by default; one that is there is changed only if RETENTION is set. Run it again whenever
# you like: it changes only what differs. Needs the `temporal` command line and TEMPORAL_ADDRESS.
set -eu

: "${TEMPORAL_NAMESPACE:=default}" "${RETENTION:=}" "${ATTEMPTS_MAX:=60}"
export TEMPORAL_NAMESPACE

# retry COMMAND...: until it succeeds, once a second, at most ATTEMPTS_MAX times; then shows its last words.
retry() {
  attempt=1
  until said=$("$@" 2>&1); do
    if [ "$attempt" -ge "$ATTEMPTS_MAX" ]; then
      echo "gave up after $attempt attempts: $* said: $said" >&2
      return 1
    fi
    attempt=$((attempt + 1))
    sleep 1
  done
}

keep_namespace() {
  if ! temporal operator namespace describe --namespace "$TEMPORAL_NAMESPACE" >/dev/null 2>&1; then
    temporal operator namespace create --namespace "$TEMPORAL_NAMESPACE" --retention "${RETENTION:-30d}"
  elif [ -n "$RETENTION" ]; then
    temporal operator namespace update --namespace "$TEMPORAL_NAMESPACE" --retention "$RETENTION"
  fi
}

retry temporal operator cluster health
retry keep_namespace
for attribute in HoldfastAgent=Keyword HoldfastStatus=Keyword HoldfastStopReason=Keyword HoldfastSteps=Int HoldfastTokens=Int \
  HoldfastCost=Double HoldfastEstimatedTokens=Int HoldfastCachedTokens=Double HoldfastUnpriced=Keyword HoldfastTenant=Keyword HoldfastParent=Keyword HoldfastWaiting=Keyword; do
  retry temporal operator search-attribute create --name "${attribute%=*}" --type "${attribute#*=}"
done
# The server's caches learn a new attribute some seconds later, and a workflow that uses it earlier fails.
retry temporal workflow count --query 'HoldfastAgent = "" AND HoldfastStatus = "" AND HoldfastStopReason = "" AND HoldfastSteps = 0 AND HoldfastTokens = 0 AND HoldfastCost = 0 AND HoldfastEstimatedTokens = 0 AND HoldfastCachedTokens = 0 AND HoldfastUnpriced = "" AND HoldfastTenant = "" AND HoldfastParent = "" AND HoldfastWaiting = ""'
echo "namespace $TEMPORAL_NAMESPACE is ready"
