#!/usr/bin/env bash
# Runs shellcheck over every shell script of the repository, where it is installed; CI always has it.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
if ! command -v shellcheck >/dev/null; then
  [[ -z ${CI:-} ]] || { echo "lint: shellcheck is missing; hack/install-deps.sh test installs it" >&2; exit 1; }
  echo "lint: shellcheck is not installed, so the shell scripts were not checked"
  exit 0
fi
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard | while read -r file; do
  first=
  [[ -f $file ]] && { read -r first <"$file" || true; } 2>/dev/null
  if [[ $first =~ ^(\#!.*(/| )(ba)?sh( |$)|\#\ shellcheck\ shell=) ]]; then echo "$file"; fi
done)
shellcheck --external-sources "${scripts[@]}"
