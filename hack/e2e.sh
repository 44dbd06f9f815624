#!/usr/bin/env bash
# Runs the end-to-end suite on a real cluster; called by "make e2e", which builds the image, img and helm.
#
# Reads CLUSTER, IMAGE, IMAGE_TAR, NODES (2), E2E_ARGS (more flags for go test), E2E_TIMEOUT (25m), KEEP (leave the cluster up)
# and, for a cluster that pulls its images, CLIENTS_IMAGE and KCAT_IMAGE. The suite gets
#   E2E_ROOT             the repository
#   E2E_CLUSTER          local, kind or current
#   E2E_CLUSTER_COMMAND  hack/cluster/cluster, for pid, node-cut and node-join; empty unless the cluster is local
#   E2E_IMAGE, E2E_CLIENTS_IMAGE, E2E_KCAT_IMAGE
#   E2E_HELM             the helm to use
# and a kubeconfig and kubectl from "hack/kube run".
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
ROOT=$PWD
: "${CLUSTER:?}" "${IMAGE:?}" "${IMAGE_TAR:?}"
CLIENTS_IMAGE=${CLIENTS_IMAGE:-localhost/ringmaster-clients:dev}
KCAT_IMAGE=${KCAT_IMAGE:-localhost/ringmaster-kcat:dev}
export CLUSTER

# img OUT.tar REF FILE... -- ENTRYPOINT: for the machine's own architecture, which is the local cluster's and kind's.
img() { "$ROOT/bin/tools/img" "$@"; }

# pack_clients: the suite's own readers and writers, built around an unmodified client library.
pack_clients() {
  echo "e2e: packing $CLIENTS_IMAGE"
  CGO_ENABLED=0 GOOS=linux go -C test/clients build -trimpath -o "$ROOT/bin/image/clients" .
  img bin/clients-image.tar "$CLIENTS_IMAGE" bin/image/clients:/clients -- /clients
}

# pack_kcat: this machine's kcat with the libraries that it loads, each at its own path.
pack_kcat() {
  local kcat
  kcat=$(command -v kcat) || { echo "e2e: kcat is missing: run \"hack/install-deps.sh test\", or install the package kcat" >&2; exit 1; }
  echo "e2e: packing $KCAT_IMAGE"
  mapfile -t libraries < <(ldd "$kcat" | grep -o '/[^ ]*')
  img bin/kcat-image.tar "$KCAT_IMAGE" "$kcat" "${libraries[@]}" -- "$kcat"
}

echo "e2e: go vet"
go vet -tags e2e ./test/e2e/...
images=("$IMAGE_TAR")
if [[ $CLUSTER != current ]]; then
  pack_clients
  pack_kcat
  images+=(bin/clients-image.tar bin/kcat-image.tar)
fi

# A cluster that was up before (the demo's) stays up.
was_up=
if [[ $CLUSTER == local ]] && hack/cluster/cluster status >/dev/null 2>&1; then was_up=1; fi
cleanup() { [[ -n ${KEEP:-}$was_up ]] || hack/kube down; }
trap cleanup EXIT

hack/kube up "${NODES:-2}"
hack/kube load "${images[@]}"
export E2E_ROOT=$ROOT E2E_CLUSTER=$CLUSTER E2E_CLUSTER_COMMAND='' E2E_HELM=$ROOT/bin/tools/helm
export E2E_IMAGE=$IMAGE E2E_CLIENTS_IMAGE=$CLIENTS_IMAGE E2E_KCAT_IMAGE=$KCAT_IMAGE
if [[ $CLUSTER == local ]]; then E2E_CLUSTER_COMMAND=$ROOT/hack/cluster/cluster; fi
# The suite is compiled out here, where modules can be fetched, and runs inside the cluster's network.
read -ra more <<<"${E2E_ARGS:-}"
go test -tags e2e -v -count=1 -timeout "${E2E_TIMEOUT:-25m}" -exec "$ROOT/hack/kube run" ./test/e2e "${more[@]}"
