#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME, one after the other.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
time=${1:-10s}
git ls-files --cached --others --exclude-standard '*_test.go' | { xargs grep -lE '^func Fuzz' || true; } | xargs -r -n1 dirname | sort -u |
  while read -r package; do
    for target in $(go test -list '^Fuzz' "./$package" | grep '^Fuzz'); do
      echo "fuzz: ./$package $target for $time"
      go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$package"
    done
  done
