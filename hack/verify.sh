#!/usr/bin/env bash
# Fails if a Go file is not formatted, a generated file differs from what the sources give, or a go.mod is not tidy.
# Compares with the working tree, not with a commit, so it can be run before committing. What was out of date is mended.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
failed=0
fail() { echo "verify: $*" >&2; failed=1; }

unformatted=$(git ls-files --cached --others --exclude-standard '*.go' | while read -r file; do [[ ! -e $file ]] || echo "$file"; done | xargs -r gofmt -l)
[[ -z $unformatted ]] || fail "not formatted (run gofmt -w): $(xargs <<<"$unformatted")"

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
generated=(config/crd/bases config/rbac/role.yaml charts/ringmaster/files api)
for path in "${generated[@]}"; do
  [[ -e $path ]] || continue
  mkdir -p "$before/$(dirname "$path")"
  cp -r "$path" "$before/$path"
done
make -s generate manifests
for path in "${generated[@]}"; do
  diff -ruN "$before/$path" "$path" || fail "$path was out of date and has been regenerated (make generate manifests): commit it"
done

for module in . hack/tools test/bench test/clients test/conformance test/rebalance; do
  go -C "$module" mod tidy -diff | head -n 20 || fail "$module/go.mod is not tidy: run \"go -C $module mod tidy\""
done
exit $failed
