#!/usr/bin/env bash
# fuzz.sh N: runs every fuzz target of the module, one after the other, for N: a number of inputs such as 5000x, or a time such as 1m. Before Go 1.27 a run for
# a time may end with "context deadline exceeded" where nothing is wrong (https://go.dev/issue/75804), so the default, and what CI runs, is a number.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
time=${1:-5000x}
git ls-files --cached --others --exclude-standard '*_test.go' | { xargs grep -lE '^func Fuzz' || true; } | xargs -r -n1 dirname | sort -u |
  while read -r package; do
    for target in $(go test -list '^Fuzz' "./$package" | grep '^Fuzz'); do
      echo "fuzz: ./$package $target for $time"
      go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$package"
    done
  done
