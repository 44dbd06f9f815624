#!/usr/bin/env bash
# Runs a command with a Redis of its own, whose URL it finds in RINGMASTER_TEST_REDIS_URL: hack/on-redis.sh go test ./broker/server
set -euo pipefail
command -v redis-server >/dev/null || { echo "on-redis: redis-server is missing: run hack/install-deps.sh test" >&2; exit 1; }
dir=$(mktemp -d)
redis-server --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" --save "" --appendonly yes --logfile redis.log &
redis=$!
cleanup() {
  kill "$redis" 2>/dev/null || true
  wait "$redis" 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
for _ in {1..200}; do
  if redis-cli -s "$dir/redis.sock" ping >/dev/null 2>&1; then break; fi
  sleep 0.05
done
RINGMASTER_TEST_REDIS_URL=unix://$dir/redis.sock "$@"
