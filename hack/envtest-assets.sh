#!/usr/bin/env bash
# Prints a directory that holds etcd, kube-apiserver and kubectl for the envtest suites. The first of:
#   1. KUBEBUILDER_ASSETS, if it is set;
#   2. what hack/cluster built earlier, or setup-envtest downloaded earlier;
#   3. what setup-envtest can download now (ENVTEST_DOWNLOAD=0 leaves this out);
#   4. what hack/cluster builds now from Go modules.
set -euo pipefail
ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
LOCAL=$ROOT/hack/cluster/cluster

complete() { [[ -x $1/etcd && -x $1/kube-apiserver && -x $1/kubectl ]]; }

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  complete "$KUBEBUILDER_ASSETS" || { echo "envtest: KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS lacks etcd, kube-apiserver or kubectl" >&2; exit 1; }
  echo "$KUBEBUILDER_ASSETS"
  exit
fi

if "$LOCAL" envtest-assets --if-built 2>/dev/null; then exit; fi

# The Kubernetes minor version that the product's k8s.io modules belong to.
minor=$(go -C "$ROOT" list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
setup_envtest() { timeout "$1" "$ROOT/bin/tools/setup-envtest" use "1.$minor" -p path "${@:2}" 2>/dev/null; }
if [[ ${ENVTEST_DOWNLOAD:-1} != 0 ]] && make -s -C "$ROOT" "$ROOT/bin/tools/setup-envtest" >/dev/null 2>&1; then
  if assets=$(setup_envtest 20 --installed-only) && complete "$assets"; then echo "$assets"; exit; fi
  echo "envtest: looking for a download of Kubernetes 1.$minor's API server" >&2
  if assets=$(setup_envtest 180) && complete "$assets"; then echo "$assets"; exit; fi
  echo "envtest: none to be had; building it from Go modules, once" >&2
fi
exec "$LOCAL" envtest-assets
