# shellcheck shell=bash
# Starts, describes and removes the whole cluster; sourced by ../cluster.

api_ready() { netns_exists "$CP" && have kubectl && kubectl_cp get --raw /readyz --request-timeout=5s >/dev/null 2>&1; }
lock() { exec 9<"$HERE/cluster"; flock --timeout 300 9 || die "another \"cluster up\" or \"cluster down\" has been running for 5 minutes"; }

up() {
  local want=$1 begin=$SECONDS n running
  if [[ ! $want =~ ^[1-9][0-9]?$ ]] || ((want > MAX_NODES)); then die "NODES must be a number from 1 to $MAX_NODES, not \"$want\""; fi
  need_root up
  lock
  if api_ready; then
    running=$(node_numbers | wc -l)
    ((running >= want)) && { say "already up with $running node(s); \"cluster down\" removes it"; return; }
  else
    if [[ -e $STATE || -e /run/netns/$CP ]]; then say "removing a cluster that did not start, or stopped"; remove; fi
    "$HERE/../install-deps.sh" cluster
    build
    say "starting the control plane"
    control_plane
    running=0
  fi
  for ((n = running + 1; n <= want; n++)); do say "starting node$n"; node_up "$n"; done
  await 90 "the last node" "kubelet-$want" nodes_ready "$want"
  kubectl_cp apply -f "$HERE/addons.yaml" >/dev/null # only now, so that DNS is spread over the nodes
  await 90 "cluster DNS" "kubelet-1" kubectl_cp -n kube-system wait --for=condition=Available deployment/coredns --timeout=1s
  say "up in $((SECONDS - begin)) s: $want node(s), Kubernetes $KUBE; try: $HERE/cluster run kubectl get nodes"
}

nodes_ready() { [[ $(kubectl_cp get nodes --no-headers | grep -cw Ready) == "$1" ]]; }

control_plane() {
  mkdir -p "$STATE"/{pids,images,certs,volumes} "$RUN"
  chmod 711 "$STATE"
  chmod 700 "$STATE/volumes"
  write_credentials
  write_proxy control-plane >"$STATE/proxy.yaml"
  "$BIN/img" "$STATE/images/pause.tar" localhost/pause:1 "$BIN/pause:/pause" -- /pause
  "$BIN/img" "$STATE/images/coredns.tar" localhost/coredns:1 "$BIN/coredns:/coredns" -- /coredns -conf /etc/coredns/Corefile
  control_plane_network
  start etcd "$CP" etcd --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
  start apiserver "$CP" kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 --bind-address=0.0.0.0 \
    --advertise-address="$NET.0.1" --cert-dir="$STATE/certs" --token-auth-file="$STATE/tokens.csv" \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$STATE/sa.pub" \
    --service-account-signing-key-file="$STATE/sa.key" --authorization-mode=Node,RBAC --service-cluster-ip-range="$SVC.0.0/16" \
    --allow-privileged=true --kubelet-preferred-address-types=InternalIP --profiling=false
  await 90 "the API server" apiserver kubectl_cp get --raw /readyz
  start controller-manager "$CP" kube-controller-manager --kubeconfig="$KUBECONFIG" --service-account-private-key-file="$STATE/sa.key" \
    --root-ca-file="$STATE/certs/apiserver.crt" --leader-elect=false --node-monitor-grace-period=20s
  start scheduler "$CP" kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false
  start provisioner "$CP" provisioner --kubeconfig "$KUBECONFIG" --root "$STATE/volumes"
  start proxy-cp "$CP" kube-proxy --config "$STATE/proxy.yaml"
}

# write_credentials: a key for service accounts, a token for the administrator, and the kubeconfig that holds it.
write_credentials() {
  local token
  openssl genrsa -out "$STATE/sa.key" 2048 2>/dev/null
  openssl rsa -in "$STATE/sa.key" -pubout -out "$STATE/sa.pub" 2>/dev/null
  token=$(openssl rand -hex 16)
  (umask 077 && echo "$token,admin,admin,system:masters" >"$STATE/tokens.csv" && cat >"$KUBECONFIG") <<YAML
apiVersion: v1
kind: Config
clusters: [{name: ringmaster, cluster: {server: "https://$NET.0.1:6443", certificate-authority: "$STATE/certs/apiserver.crt"}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: ringmaster, context: {cluster: ringmaster, user: admin}}]
current-context: ringmaster
YAML
  cat >"$STATE/resolv.conf" <<CONF
nameserver $SVC.0.10
search default.svc.cluster.local svc.cluster.local cluster.local
options ndots:5
CONF
}

control_plane_network() {
  local module
  if command -v modprobe >/dev/null; then
    for module in overlay br_netfilter; do modprobe -q "$module" || true; done
  fi
  ip netns add "$CP" || die "cannot create a network namespace: this machine's kernel or sandbox forbids it"
  in_ns "$CP" sh -ec "
    ip link set lo up
    ip link add br0 type bridge
    ip addr add $NET.0.1/16 dev br0
    ip link set br0 up
    ip route add $SVC.0.0/16 dev br0"
  forwarding "$CP"
}

# run COMMAND...: in the control plane's network and with the cluster's DNS, in a mount namespace of its own.
run() {
  need_root run; need_up
  # shellcheck disable=SC2016 # the inner shell expands them
  exec nsenter --net="/run/netns/$CP" unshare --mount sh -c 'mount --bind "$0" /etc/resolv.conf && exec "$@"' "$STATE/resolv.conf" "$@"
}

status() {
  if ! netns_exists "$CP"; then say "down"; exit 3; fi
  need_root status
  api_ready || { say "started, but the API server does not answer; its log is $STATE/apiserver.log"; exit 3; }
  say "up, Kubernetes $KUBE, state in $STATE"
  kubectl_cp get nodes -o wide
}

down() {
  need_root down
  lock
  if [[ ! -e $STATE && ! -e $RUN && ! -e /run/netns/$CP ]]; then say "not up"; return; fi
  remove
  say "down; builds are kept in $CACHE"
}

# remove: kills before it deletes. What a node had mounted is in its own mount namespace and goes with its last process, so
# nothing that a pod had mounted can be deleted; mounts below our folders that are someone else's make it stop.
remove() {
  local i left mounts n
  for ((i = 0; i < 100; i++)); do
    left=$(our_processes)
    [[ -z $left ]] && break
    # shellcheck disable=SC2086 # one process id a word
    kill -9 $left 2>/dev/null || true
    sleep 0.1
  done
  [[ -z $left ]] || die "these processes do not end: $(xargs <<<"$left")"
  mounts=$(mounts_below "$STATE" "$RUN")
  [[ -z $mounts ]] || die "these are still mounted: $(xargs <<<"$mounts"); unmount them and run \"cluster down\" again"
  for n in $(node_numbers); do ip netns del "$NODE$n"; done
  if netns_exists "$CP"; then ip netns del "$CP"; fi
  our_cgroups | while read -r n; do rmdir "$n" 2>/dev/null || true; done
  if [[ -f $STATE/made-folders ]]; then xargs rmdir --ignore-fail-on-non-empty <"$STATE/made-folders" || true; fi
  rm -rf --one-file-system "${STATE:?}" "${RUN:?}"
}

# our_processes: all that lives in a node's namespace or cgroup, and what we started in the control plane's.
# (A "cluster run" that calls "cluster down" lives there too, and is spared.)
our_processes() {
  local n f
  for n in $(node_numbers); do ip netns pids "$NODE$n"; done
  our_cgroups | while read -r n; do cat "$n/cgroup.procs" 2>/dev/null || true; done
  if netns_exists "$CP"; then
    for f in "$STATE"/pids/*; do [[ -f $f ]] && cat "$f"; done | sort | comm -12 - <(ip netns pids "$CP" | sort)
  fi
}

mounts_below() { awk -v a="$1/" -v b="$2/" 'index($2, a) == 1 || index($2, b) == 1 { print $2 }' /proc/mounts; }
our_cgroups() { find /sys/fs/cgroup -depth -type d \( -path "/sys/fs/cgroup/${NODE}[0-9]*" -o -path "/sys/fs/cgroup/*/${NODE}[0-9]*" \) 2>/dev/null || true; }
