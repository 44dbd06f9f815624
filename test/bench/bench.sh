#!/usr/bin/env bash
# Installs what is missing, builds, and runs the benchmark; called by "make bench".
#
#   BENCH      a regular expression of the works (see test/bench/work.go); all if empty
#   PEERS      one of the peers: ringmaster-flush, ringmaster-os, kafka-flush, kafka-os, kfake-memory, kfake-flush, redis-always,
#              redis-everysec, nats-always, nats-default, disk-flush, disk-os; of groups ringmaster-groups and kafka-groups
#   QUICK      a few works and peers, in less than three minutes
#   BENCH_DIR  a directory on the disk to measure; /var/tmp if empty
#   PROFILE    a directory for perf's profiles of this project's broker
#   BENCH_ARGS more flags; -h lists them
#
# The report is printed, and each of the two parts of docs/benchmarks.md is written whose works were all done as they are: both by a run of everything, that of
# consumer groups by BENCH=rebalance (about 5 minutes).
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
out=$PWD/bin/bench
jars=$out/kafka
args=(-dir "${BENCH_DIR:-/var/tmp}" -ringmaster "$out/ringmaster" -kafka "$jars" -o "$out/bench.json")
[[ -z ${QUICK:-} ]] || args+=(-quick)
[[ -z ${BENCH:-} ]] || args+=(-works "$BENCH")
[[ -z ${PEERS:-} ]] || args+=(-peers "$PEERS")
[[ -n ${QUICK:-}${PEERS:-}${PROFILE:-}${BENCH_ARGS:-} ]] || args+=(-doc docs/benchmarks.md)
if [[ -n ${PROFILE:-} ]]; then
  mkdir -p "$PROFILE"
  args+=(-profile "$PROFILE")
fi
read -ra more <<<"${BENCH_ARGS:-}"

wanted() { [[ -z ${PEERS:-} ]] || grep -qE -- "$PEERS" < <(printf '%s\n' "$@"); }
if wanted kafka-flush kafka-os kafka-groups; then
  hack/install-deps.sh java
  version=$(sed -n 's:.*<version>\(.*\)</version><!-- Kafka -->.*:\1:p' test/bench/kafka/pom.xml)
  if [[ ! -f $jars/kafka_2.13-$version.jar ]]; then
    echo "bench: fetching Kafka $version"
    rm -rf "$jars"
    mvn --quiet --batch-mode --strict-checksums --file test/bench/kafka/pom.xml dependency:copy-dependencies -DoutputDirectory="$jars" ||
      { rm -rf "$jars"; echo "bench: Maven could not fetch Kafka $version; leave it out with PEERS='ringmaster|disk|kfake|redis|nats'" >&2; exit 1; }
  fi
fi
if wanted redis-always redis-everysec && [[ -z ${QUICK:-} ]]; then hack/install-deps.sh redis; fi

echo "bench: building"
mkdir -p "$out"
# With symbols, unlike what is released, so that perf can name what it sees.
CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=${VERSION:-dev}" -o "$out/ringmaster" ./cmd/ringmaster
CGO_ENABLED=0 go -C test/bench build -trimpath -o "$out/bench" .
exec "$out/bench" "${args[@]}" "${more[@]}"
