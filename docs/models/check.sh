#!/usr/bin/env bash
# Checks the model in this folder exhaustively with Spin, and that the check can fail: each mutation leaves a rule out, and Spin has to find the error. README.md says what is checked.
# DEEP=1 checks larger ones too, which takes some minutes and 2 GB of memory. Needs spin and gcc, which "hack/install-deps.sh test" installs.
set -euo pipefail
model=$(cd "$(dirname "$0")" && pwd)/handoff.pml

for program in spin gcc; do
  command -v "$program" >/dev/null || { echo "models: $program is missing: run hack/install-deps.sh test" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check KIND WANT NAME [-DNAME=VALUE...]: KIND is safety, or liveness (under weak fairness), and WANT is holds or fails.
check() {
  local kind=$1 want=$2 name=$3 begin=$SECONDS compile run found
  shift 3
  cd "$(mktemp -d -p "$work")"
  spin "$@" -a "$model" >spin.log 2>&1 || { cat spin.log >&2; echo "models: spin cannot read handoff.pml" >&2; return 1; }
  if [[ $kind == safety ]]; then
    compile=(-DSAFETY -DNOCLAIM -DCOLLAPSE) run=(-m10000)
  else
    compile=(-DNFAIR=3 -DCOLLAPSE) run=(-a -f -m1000000)
  fi
  gcc -O1 -w "${compile[@]}" -o pan pan.c
  ./pan "${run[@]}" >pan.log 2>&1 || true
  if ! grep -q 'errors: ' pan.log || grep -q 'max search depth too small' pan.log; then
    cat pan.log >&2
    echo "models: $kind, $name: the check did not come to its end" >&2
    return 1
  fi
  found=holds
  grep -q 'errors: 0$' pan.log || found=fails
  echo "models: $kind, $name: $found, $(awk '/states, stored/ {print $1}' pan.log) states, $((SECONDS - begin)) s"
  if [[ $found != "$want" ]]; then
    echo "models: $kind, $name: it should be otherwise; the steps to the error:" >&2
    spin "$@" -t -p -g -k handoff.pml.trail "$model" 2>/dev/null | tail -n 200 >&2 || true
    return 1
  fi
}

one=(-DPLANS=1 -DFAULTS=1)
check safety holds "2 clients, 2 partitions, 1 change, 1 fault, classic and KIP-848" "${one[@]}" -DCONSUMERS=2
check safety holds "the same, classic alone" "${one[@]}" -DCONSUMERS=0
check safety holds "the same, KIP-848 alone" "${one[@]}" -DCONSUMERS=3
check safety holds "1 partition, 2 changes, 1 fault, classic and KIP-848" -DPARTITIONS=1 -DPLANS=2 -DFAULTS=1 -DCONSUMERS=2
if [[ ${DEEP:-} ]]; then
  check safety holds "2 partitions, 2 changes, 1 fault, classic and KIP-848" -DPLANS=2 -DFAULTS=1 -DCONSUMERS=2
  check safety holds "2 partitions, 1 change, 2 faults, classic and KIP-848" -DPLANS=1 -DFAULTS=2 -DCONSUMERS=2
  check safety holds "3 clients, 1 partition, 1 change, 1 fault" "${one[@]}" -DCLIENTS=3 -DPARTITIONS=1 -DCONSUMERS=2
  check liveness holds "1 partition, 2 changes, 1 fault, classic and KIP-848" -DPLANS=2 -DFAULTS=1 -DPARTITIONS=1 -DCONSUMERS=2
fi
check liveness holds "2 clients, 1 partition, 1 change, 1 fault, classic and KIP-848" "${one[@]}" -DPARTITIONS=1 -DCONSUMERS=2
check safety fails "NO_WAIT" "${one[@]}" -DNO_WAIT
check safety fails "NO_FENCE" "${one[@]}" -DNO_FENCE
check safety fails "LOSE_HOLDERS" "${one[@]}" -DLOSE_HOLDERS
check liveness fails "NO_TIMEOUT" "${one[@]}" -DPARTITIONS=1 -DNO_TIMEOUT
check liveness fails "NO_RETURN" "${one[@]}" -DPARTITIONS=1 -DNO_RETURN
