# shellcheck shell=bash
# Helpers for the files beside this one; sourced by ../cluster.

say() { printf 'cluster: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

need_root() { [[ $(id -u) == 0 ]] || die "\"$1\" creates network namespaces and cgroups and so needs root: run it with sudo"; }
need_up() { netns_exists "$CP" || die "the cluster is not up: start it with \"$HERE/cluster up\""; }

netns_exists() { [[ -e /run/netns/$1 ]]; }
in_ns() { local ns=$1; shift; nsenter --net="/run/netns/$ns" "$@"; }
kubectl_cp() { in_ns "$CP" "$BIN/kubectl" "$@"; }
socket() { printf '%s/n%s/containerd.sock' "$RUN" "$1"; }

# node_numbers: the running nodes' numbers, sorted.
node_numbers() {
  local f
  for f in "/run/netns/$NODE"[0-9]*; do [[ -e $f ]] && printf '%s\n' "${f#"/run/netns/$NODE"}"; done | sort -n
}

# start NAME NETNS COMMAND...: runs COMMAND in a network namespace, in the background and in a session of its
# own. Its log is STATE/NAME.log, its process id is kept in STATE/pids/NAME. It does not inherit our lock.
start() {
  local name=$1 ns=$2; shift 2
  nohup setsid nsenter --net="/run/netns/$ns" "$@" >"$STATE/$name.log" 2>&1 </dev/null 9<&- &
  echo $! >"$STATE/pids/$name"
}

# await SECONDS WHAT LOG COMMAND...: waits until COMMAND succeeds; otherwise shows the end of STATE/LOG.log.
await() {
  local seconds=$1 what=$2 log=$3 deadline; shift 3
  deadline=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS >= deadline)); then
      tail -n 5 "$STATE/$log.log" >&2 || true
      die "$what was not ready in $seconds s; its log is $STATE/$log.log, and \"cluster down\" cleans up"
    fi
    sleep 0.2
  done
}
