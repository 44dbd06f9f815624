#!/usr/bin/env bash
# Installs, through apt-get, the programs of the named groups that are missing; does nothing if none is.
#
#   install-deps.sh cluster   what hack/cluster needs to run
#   install-deps.sh test      what make test, make lint, make models and make e2e need besides
#   install-deps.sh cgo       what make conformance-suites needs for Go's clients
#   install-deps.sh librdkafka  and for librdkafka
#   install-deps.sh java      what the clients of make conformance need that run on each of these;
#   install-deps.sh kcat      each is a group of its own
#   install-deps.sh node
#   install-deps.sh python
#   install-deps.sh redis     what make bench compares with, besides java
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

# PROGRAM:PACKAGE, each looked for in PATH. A program of cni/ may be in any of the folders that distributions use; one of python/ is a module, of include/ a header.
cluster=(containerd:containerd ctr:containerd runc:runc iptables:iptables conntrack:conntrack ip:iproute2 sysctl:procps
  mount:mount nsenter:util-linux openssl:openssl cni/bridge:containernetworking-plugins)
test=(gcc:gcc include/stdlib.h:libc6-dev git:git kcat:kcat make:make redis-cli:redis-tools redis-server:redis-server shellcheck:shellcheck spin:spin)
cgo=(gcc:gcc include/stdlib.h:libc6-dev)
java=(javac:default-jdk-headless mvn:maven)
kcat=(kcat:kcat)
librdkafka=(gcc:gcc g++:g++ include/stdlib.h:libc6-dev include/zlib.h:zlib1g-dev make:make npm:npm)
node=(node:nodejs npm:npm)
redis=(redis-server:redis-server)
python=(python3:python3 python/ensurepip:python3-venv)

present() {
  if [[ $1 == cni/* ]]; then
    for dir in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do [[ -x $dir/${1#cni/} ]] && return 0; done
    return 1
  fi
  if [[ $1 == python/* ]]; then python3 -c "import ${1#python/}" 2>/dev/null; return; fi
  if [[ $1 == include/* ]]; then [[ -e /usr/$1 ]]; return; fi
  command -v "$1" >/dev/null
}

(($#)) || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
missing=()
for group in "$@"; do
  case $group in
    cluster) pairs=("${cluster[@]}") ;;
    test) pairs=("${test[@]}") ;;
    cgo) pairs=("${cgo[@]}") ;;
    java) pairs=("${java[@]}") ;;
    kcat) pairs=("${kcat[@]}") ;;
    librdkafka) pairs=("${librdkafka[@]}") ;;
    node) pairs=("${node[@]}") ;;
    python) pairs=("${python[@]}") ;;
    redis) pairs=("${redis[@]}") ;;
    *) echo "install-deps: unknown group \"$group\": say cluster, test, cgo, librdkafka, java, kcat, node, python or redis" >&2; exit 2 ;;
  esac
  for pair in "${pairs[@]}"; do
    present "${pair%%:*}" || [[ " ${missing[*]} " == *" ${pair#*:} "* ]] || missing+=("${pair#*:}")
  done
done
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
  echo "install-deps: missing ${missing[*]} and there is no apt-get here: install them with this system's package manager" >&2
  exit 1
fi
if [[ $(id -u) != 0 ]]; then
  echo "install-deps: missing ${missing[*]}: run \"sudo apt-get install ${missing[*]}\"" >&2
  exit 1
fi
begin=$SECONDS
echo "install-deps: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
  tail -n 15 "$log" >&2
  echo "install-deps: apt-get could not install ${missing[*]}" >&2
  exit 1
fi
echo "install-deps: installed in $((SECONDS - begin)) s" >&2
