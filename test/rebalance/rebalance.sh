#!/usr/bin/env bash
# Builds, starts the cluster of hack/cluster and runs the measurement; called by "make rebalance", which builds the image, img and helm.
#
#   QUICK=1            three kinds of clients, few rounds
#   KINDS=NAME,...     the clients (see test/rebalance/kinds.go)
#   SYSTEMS=NAME,...   ringmaster, kafka
#   PARTS=NAME,...     scale, kill, roll, burst (which alone needs no cluster)
#   REBALANCE_ARGS     more flags; -h lists them
#   KEEP=1             leaves the cluster up
#   DOC=1              writes docs/rebalance.md whatever was chosen
#
# A run of everything writes docs/rebalance.md. It takes about 1 h 45 min; a quick one about 12 min.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
ROOT=$PWD
out=$ROOT/bin/rebalance
jars=$ROOT/bin/bench/kafka
: "${IMAGE:?}" "${IMAGE_TAR:?}"
members=localhost/ringmaster-rebalance:dev
mkdir -p "$out"

hack/install-deps.sh java python
version=$(sed -n 's:.*<version>\(.*\)</version><!-- Kafka -->.*:\1:p' test/bench/kafka/pom.xml)
if [[ ! -f $jars/kafka_2.13-$version.jar ]]; then
  echo "rebalance: fetching Kafka $version"
  rm -rf "$jars"
  mvn --quiet --batch-mode --strict-checksums --file test/bench/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$jars" || { rm -rf "$jars"; exit 1; }
fi
requirements=test/conformance/clients/confluent/requirements.txt
venv=$out/python-$(sha256sum "$requirements" | cut -c1-12)
if [[ ! -f $venv/.done ]]; then
  echo "rebalance: fetching librdkafka"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$requirements"
  touch "$venv/.done"
fi
echo "rebalance: building"
mkdir -p "$out/classes"
javac -d "$out/classes" -cp "$jars/*" test/rebalance/clients/java/Member.java
CGO_ENABLED=0 go -C test/rebalance build -trimpath -o "$out/rebalance" .
CGO_ENABLED=0 GOOS=linux go -C test/rebalance build -trimpath -o "$out/member" ./member
bin/tools/img "$out/image.tar" "$members" "$out/member:/member" -- /member

# Pods run this machine's Java and Python: they get the folders that hold them, read-only, at the same place.
mounts=/usr,/lib,/lib64,$ROOT
for dir in "$(dirname "$(readlink -f "$venv/bin/python3")")/.." /etc/java-*-openjdk; do
  dir=$(readlink -f "$dir")
  [[ ! -d $dir || $dir == /usr ]] || mounts+=,$dir
done

args=(-source "$ROOT/test/rebalance" -helm "$ROOT/bin/tools/helm" -kafka "$jars" -java "$(readlink -f "$(command -v java)")" -classes "$out/classes" -python "$venv/bin/python3"
  -mounts "$mounts" -image "$members" -ringmaster-image "$IMAGE" -ringmaster "$ROOT/bin/image/ringmaster")
if [[ -n ${QUICK:-} ]]; then
  args+=(-quick -kinds "${KINDS:-franz-eager,librdkafka-cooperative,java-848}" -rounds 4 -kafka-rounds 0 -short-rounds 1)
elif [[ -n ${KINDS:-} ]]; then
  args+=(-kinds "$KINDS")
fi
[[ -z ${SYSTEMS:-} ]] || args+=(-systems "$SYSTEMS")

# Groups from nothing need an API server, and no cluster.
if [[ -z ${PARTS:-} || ,$PARTS, == *,burst,* ]]; then
  assets=$(hack/envtest-assets.sh)
  KUBEBUILDER_ASSETS="$assets" "$out/rebalance" "${args[@]}" -parts burst -o "$out/bursts.json"
fi
[[ ${PARTS:-} != burst ]] || exit 0

was_up=
if hack/cluster/cluster status >/dev/null 2>&1; then was_up=1; fi
cleanup() { [[ -n ${KEEP:-}$was_up ]] || hack/cluster/cluster down; }
trap cleanup EXIT
hack/cluster/cluster up "${NODES:-2}"
hack/cluster/cluster load "$IMAGE_TAR" "$out/image.tar"
args+=(-o "$out/rebalance.json")
[[ -z ${PARTS:-} ]] || args+=(-parts "$PARTS")
[[ ! -f $out/bursts.json ]] || args+=(-merge "$out/bursts.json")
[[ -z ${DOC:-} && -n ${QUICK:-}${KINDS:-}${SYSTEMS:-}${PARTS:-}${REBALANCE_ARGS:-} ]] || args+=(-doc "$ROOT/docs/rebalance.md")
read -ra more <<<"${REBALANCE_ARGS:-}"
hack/cluster/cluster run "$out/rebalance" "${args[@]}" "${more[@]}"
