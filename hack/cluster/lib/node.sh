# shellcheck shell=bash
# One node: a network and a mount namespace with containerd, the kubelet and kube-proxy; sourced by ../cluster.

# Where containerd, runc, CNI and the kubelet write whatever they are told. Each node gets folders of its own there, in its
# mount namespace alone: nothing is left on the machine afterwards, and nothing that other software keeps there is touched.
readonly FIXED_FOLDERS=(/run/containerd /opt/containerd /var/lib/cni /var/lib/kubelet /var/log/containers)

# node_up N: starts node N and leaves it to register itself.
node_up() {
  local n=$1 ns=$NODE$1 ip=$NET.$1.1 dir=$STATE/node$1
  mkdir -p "$dir/cni" "$dir/kubelet" "$RUN/n$n"
  node_network "$n" "$ns" "$ip"
  node_cgroup "$ns"
  write_cni "$n" "$ip" "$dir" >"$dir/cni/10-pods.conflist"
  write_containerd "$n" "$dir" >"$dir/containerd.toml"
  write_kubelet "$n" "$ns" "$dir" >"$dir/kubelet.yaml"
  write_proxy "node$n" >"$dir/proxy.yaml"
  start "containerd-$n" "$ns" unshare --mount sh -ec "$(fixed_folders "$dir") exec containerd --config '$dir/containerd.toml'"
  await 30 "containerd on node$n" "containerd-$n" ctr --address "$(socket "$n")" version
  import_images "$n" "$STATE"/images/*.tar
  local mounts=(nsenter --mount="/proc/$(cat "$STATE/pids/containerd-$n")/ns/mnt")
  start "kubelet-$n" "$ns" "${mounts[@]}" kubelet --kubeconfig="$KUBECONFIG" --config="$dir/kubelet.yaml" --root-dir="$dir/kubelet" \
    --cert-dir="$dir/pki" --hostname-override="node$n" --node-ip="$ip"
  start "proxy-$n" "$ns" kube-proxy --config "$dir/proxy.yaml"
}

# fixed_folders DIR: makes the node's own folders below DIR and prints the commands that mount them. A folder that the
# machine lacks is made to mount on; STATE/made-folders tells "down" to remove it.
fixed_folders() {
  local folder own
  for folder in "${FIXED_FOLDERS[@]}"; do
    own=$1/fixed$folder
    mkdir -p "$own"
    [[ -d $folder ]] || { mkdir -p "$folder" && echo "$folder" >>"$STATE/made-folders"; }
    printf 'mount --bind "%s" "%s"; ' "$own" "$folder"
  done
}

# node_network N NETNS IP: a bridge that is both the pods' and the node's, plugged into the control plane's.
node_network() {
  local n=$1 ns=$2 ip=$3
  ip netns add "$ns"
  ip link add "rmv$n" netns "$CP" type veth peer name up0 netns "$ns"
  in_ns "$CP" ip link set "rmv$n" master br0 up
  in_ns "$ns" sh -ec "
    ip link set lo up
    ip link add cni0 type bridge
    ip addr add $ip/16 dev cni0
    ip link set cni0 up
    ip link set up0 master cni0 up
    ip route add $SVC.0.0/16 dev cni0"
  forwarding "$ns"
}

# forwarding NETNS: Service addresses work only if bridged packets pass through iptables.
forwarding() {
  in_ns "$1" sysctl -qw net.ipv4.ip_forward=1
  in_ns "$1" sysctl -qw net.bridge.bridge-nf-call-iptables=1 2>/dev/null ||
    die "the kernel lacks br_netfilter, which Service addresses need: load it with \"modprobe br_netfilter\""
}

# node_cgroup NAME: each kubelet needs a cgroup root of its own, or it removes the other nodes' pods.
node_cgroup() {
  local name=$1 controller file
  if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then # cgroup v2 alone
    echo '+cpu +memory +pids +cpuset' >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
    mkdir -p "/sys/fs/cgroup/$name"
    return
  fi
  for controller in cpu cpuacct cpuset memory devices freezer blkio pids systemd hugetlb perf_event; do
    [[ -d /sys/fs/cgroup/$controller ]] || continue
    mkdir -p "/sys/fs/cgroup/$controller/$name"
    [[ $controller == cpuset ]] || continue
    for file in cpuset.mems cpuset.cpus; do
      cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$name/$file"
    done
  done
}

write_cni() {
  local n=$1 ip=$2 dir=$3
  cat <<JSON
{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "mtu": 1500,
    "ipam": {
      "type": "host-local", "dataDir": "$dir/ipam",
      "ranges": [[{"subnet": "$NET.0.0/16", "rangeStart": "$NET.$n.10", "rangeEnd": "$NET.$n.250", "gateway": "$ip"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
JSON
}

# write_containerd N DIR: overlayfs cannot be stacked on itself, so a machine that is itself a container copies instead.
write_containerd() {
  local n=$1 dir=$2 snapshotter=overlayfs
  [[ $(stat -f -c %T "$dir") == overlayfs ]] && snapshotter=native
  cat <<TOML
version = 2
root = "$dir/containerd"
state = "$RUN/n$n"
[grpc]
  address = "$(socket "$n")"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_plugins)"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
TOML
}

cni_plugins() {
  local dir
  for dir in /usr/lib/cni /opt/cni/bin /usr/libexec/cni; do
    [[ -x $dir/bridge && -x $dir/host-local ]] && { printf '%s' "$dir"; return; }
  done
  die "the CNI plugins bridge and host-local are missing: install the package containernetworking-plugins"
}

write_kubelet() {
  local n=$1 ns=$2 dir=$3
  cat <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /$ns
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: unix://$(socket "$n")
podLogsDir: $dir/logs
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
clusterDNS: [$SVC.0.10]
clusterDomain: cluster.local
resolvConf: ""
nodeStatusUpdateFrequency: 4s
imageGCHighThresholdPercent: 100 # never: an image that was loaded cannot be pulled again, the pause image least of all
YAML
}

write_proxy() {
  cat <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: $KUBECONFIG}
clusterCIDR: $NET.0.0/16
hostnameOverride: $1
conntrack: {maxPerCore: 0, min: 0}
YAML
}

# import_images N TAR...: puts images where node N's kubelet finds them.
import_images() {
  local n=$1 tar; shift
  for tar in "$@"; do
    ctr --address "$(socket "$n")" -n k8s.io images import "$tar" >/dev/null ||
      die "node$n refused the image $tar: is it an image tarball, as \"cluster img\" or \"docker save\" write?"
  done
}

# load TAR...: also kept in the state folder, so that a node added later has them.
load() {
  local tar n pids=() p
  need_root load; need_up
  for tar in "$@"; do
    [[ -r $tar ]] || die "cannot read the image $tar"
    cp "$tar" "$STATE/images/$(basename "$tar")"
  done
  for n in $(node_numbers); do import_images "$n" "$@" & pids+=($!); done
  for p in "${pids[@]}"; do wait "$p"; done
}

node_link() {
  need_root "node-cut and node-join"; need_up
  netns_exists "$NODE$1" || die "there is no node $1; the running nodes are: $(node_numbers | xargs)"
  in_ns "$CP" ip link set "rmv$1" "$2"
}

# container_pid NAMESPACE POD CONTAINER: the container's process on whichever node runs it.
container_pid() {
  local n id filter pid
  need_root pid; need_up
  filter="labels.\"io.kubernetes.pod.namespace\"==$1,labels.\"io.kubernetes.pod.name\"==$2,labels.\"io.kubernetes.container.name\"==$3"
  for n in $(node_numbers); do
    for id in $(ctr --address "$(socket "$n")" -n k8s.io containers ls -q "$filter"); do
      pid=$(ctr --address "$(socket "$n")" -n k8s.io tasks ls | awk -v id="$id" '$1 == id && $3 == "RUNNING" { print $2 }')
      [[ -n $pid ]] && { printf '%s\n' "$pid"; return; }
    done
  done
  die "no running container $3 of pod $2 in namespace $1"
}
