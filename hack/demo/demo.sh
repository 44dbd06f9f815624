#!/usr/bin/env bash
# The demo: a cluster, the operator, three brokers, a topic, a producer and three consumers whose assignments kubectl shows.
#
#   demo.sh up      start it, or bring it up to date; running it again does no harm
#   demo.sh down    remove it, and the cluster with it if this started one
#
# Reads CLUSTER (local, kind or current), IMAGE, IMAGE_TAR and HELM; "make demo" sets them.
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
HERE=$ROOT/hack/demo
NS=ringmaster-demo
SYSTEM=ringmaster-system
export CLUSTER=${CLUSTER:-$("$ROOT/hack/kube" default)}
IMAGE=${IMAGE:-localhost/ringmaster:dev}
HELM=${HELM:-$ROOT/bin/tools/helm}

began=$SECONDS
step() { printf '\n==> %s (%d s)\n' "$*" $((SECONDS - began)); }
kube() { "$ROOT/hack/kube" "$@"; }
kubectl() { kube run kubectl "$@"; }
manifest() { sed "s|\${IMAGE}|$IMAGE|g" "$HERE/manifests/$1"; }

# wait_for WHAT SECONDS COMMAND...: until COMMAND succeeds; on failure says what the cluster thinks.
wait_for() {
  local what=$1 limit=$2 end
  shift 2
  end=$((SECONDS + limit))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= end)); then
      echo "demo: $what was not there after $limit s; this is what the cluster says:" >&2
      kubectl -n "$NS" get pods,brokerclusters,topics,consumergroups -o wide >&2 || true
      kubectl -n "$NS" get events --sort-by=.lastTimestamp 2>&1 | tail -n 20 >&2 || true
      return 1
    fi
    sleep 0.5
  done
}

ready() { [[ $(kubectl -n "$NS" get "$1" -o "jsonpath={.status.conditions[?(@.type=='Ready')].status}") == True ]]; }
members() { [[ $(kubectl -n "$NS" get consumergroup billing -o 'jsonpath={.status.replicas}/{.status.state}') == "$1/Stable" ]]; }

up() {
  step "Starting the cluster ($CLUSTER)"
  kube up 2
  step "Loading the image $IMAGE"
  kube load "$IMAGE_TAR"

  step "Installing the operator with Helm"
  kube run "$HELM" upgrade --install ringmaster "$ROOT/charts/ringmaster" --namespace "$SYSTEM" --create-namespace --take-ownership \
    --set image.repository="${IMAGE%:*}",image.tag="${IMAGE##*:}" --wait --timeout 3m >/dev/null
  # A second run may have built another image under the same name.
  if [[ -n ${RESTART:-} ]]; then kubectl -n "$SYSTEM" rollout restart deployment/ringmaster-operator; fi
  kubectl -n "$SYSTEM" rollout status deployment/ringmaster-operator --timeout=2m

  step "Asking for three brokers and a topic of twelve partitions"
  kubectl create namespace "$NS" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  manifest brokers.yaml | kubectl -n "$NS" apply -f -
  wait_for "the BrokerCluster events" 180 ready brokercluster/events
  wait_for "the Topic orders" 30 ready topic/orders

  step "Starting a producer and three consumers with their ConsumerGroup"
  manifest clients.yaml | kubectl -n "$NS" apply -f -
  kubectl -n "$NS" rollout status deployment/billing --timeout=2m
  kubectl -n "$NS" rollout status deployment/shop --timeout=2m
  wait_for "three members of the ConsumerGroup billing" 60 members "$(kubectl -n "$NS" get deployment billing -o 'jsonpath={.spec.replicas}')"
  wait_for "a record at a consumer" 60 records
  wait_for "the group's lag" 60 lag

  step "Who reads what"
  local kind
  for kind in brokerclusters topics consumergroups; do
    echo
    echo "$ kubectl get $kind -o wide"
    kubectl -n "$NS" get "$kind" -o wide
  done
  next
}

# No pipe into "grep -q": it ends at the first match, and kubectl would fail of the closed pipe.
records() { [[ $(kubectl -n "$NS" logs -l app=billing --tail=1) == *'"topic"'* ]]; }
lag() { [[ -n $(kubectl -n "$NS" get consumergroup billing -o 'jsonpath={.status.lag.time}') ]]; }

next() {
  local k="kubectl -n $NS"
  case $CLUSTER in
    local | kind) k="CLUSTER=$CLUSTER hack/kube run $k" ;;
  esac
  cat <<TEXT

Try next:
  $k get consumergroups -o wide -w               # in another terminal: watch the assignments
  $k scale deployment/billing --replicas=5       # scale the consumers: only what must move moves
  $k delete pod -l app=billing --field-selector=status.phase=Running --wait=false   # kill them all
  $k get consumergroup billing -o yaml           # members, assignments, the last rebalance
  $k describe consumergroup billing              # its events
  $k logs -l app=billing --prefix -f --max-log-requests=20   # the records, each at the pod that the status names
  make demo-down                                 # remove it all
TEXT
}

down() {
  case $CLUSTER in
    local | kind) kube down ;;
    *)
      kubectl delete namespace "$NS" --ignore-not-found
      kube run "$HELM" uninstall ringmaster --namespace "$SYSTEM" --ignore-not-found
      echo "demo: the CustomResourceDefinitions stay, since deleting them would delete every Topic of the cluster;"
      echo "      to remove them too: kubectl delete crd brokerclusters.ringmaster.dev topics.ringmaster.dev consumergroups.ringmaster.dev"
      ;;
  esac
}

case ${1:-} in
  up) : "${IMAGE_TAR:?set IMAGE_TAR to the image tarball that \"make image\" packs}"; up ;;
  down) down ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
