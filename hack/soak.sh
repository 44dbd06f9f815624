#!/usr/bin/env bash
# soak.sh DURATION [PACKAGE...]: runs the random and crash tests over and over, each time with new seeds, until DURATION (such as 10m) is over. The
# first failure ends it, with the seed. Packages: the storage engine's and the coordinator's, unless others are named.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
duration=${1:-10m}
[[ $duration =~ ^([0-9]+)([smh]?)$ ]] || { echo "soak: \"$duration\" is no duration: say 90s, 10m or 2h" >&2; exit 2; }
case ${BASH_REMATCH[2]} in m) unit=60 ;; h) unit=3600 ;; *) unit=1 ;; esac
end=$((SECONDS + BASH_REMATCH[1] * unit))
shift || true
(($#)) || set -- ./broker/storage/local ./broker/coordinator
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for package in "$@"; do go test -c -o "$dir/$(basename "$package").test" "$package"; done
# Some programs take the same seeds each time, unless they are told to take new ones.
declare -A seeds
for package in "$@"; do
  if "$dir/$(basename "$package").test" -help 2>&1 | grep -q '^  -seed'; then seeds[$package]=-seed=0; fi
done
rounds=0
while ((SECONDS < end)); do
  for package in "$@"; do
    (cd "$package" && "$dir/$(basename "$package").test" -test.run 'Crash|Fault|Kill|Random|EveryAcknowledged' -test.timeout 20m \
      ${seeds[$package]:+"${seeds[$package]}"} >"$dir/log" 2>&1) ||
      { cat "$dir/log"; echo "soak: FAILED in round $((rounds + 1)) of $package"; exit 1; }
  done
  rounds=$((rounds + 1))
  echo "soak: round $rounds passed, $((end > SECONDS ? end - SECONDS : 0)) s left"
done
echo "soak: $rounds rounds passed"
