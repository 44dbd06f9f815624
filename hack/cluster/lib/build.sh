# shellcheck shell=bash
# Builds the cluster's programs into the cache; sourced by ../cluster.
#
# A build goes to a temporary folder first and its binaries are renamed into place, so a binary that is
# there is whole, and an interrupted build goes on where it stopped (Go keeps what it compiled). A lock
# per step lets "make test" take what it needs while another process builds the rest.

readonly ENVTEST_COMMANDS=(kube-apiserver kubectl kube-controller-manager)
readonly NODE_COMMANDS=(kube-scheduler kubelet kube-proxy)

build() {
  build_envtest
  build_kube "about 3 minutes on 2 cores" "${NODE_COMMANDS[@]}"
  build_module "$HERE/src/coredns"
  build_module "$HERE/src/provisioner"
  build_module "$HERE/src/pause"
  build_img
}

build_envtest() {
  build_kube "about 6 minutes on 2 cores" "${ENVTEST_COMMANDS[@]}"
  build_module "$HERE/src/etcd"
}

# envtest_assets [--if-built]: prints where the programs are that the suites with an API server need.
envtest_assets() {
  case $1 in
    --if-built) { have "${ENVTEST_COMMANDS[@]}" && fresh etcd "$(module_key "$HERE/src/etcd")"; } || die "the API server has not been built" ;;
    "") build_envtest ;;
    *) die "usage: cluster envtest-assets [--if-built]" ;;
  esac
  printf '%s\n' "$BIN"
}

build_img() { build_module "$HERE/../tools" img; }

# build_kube ESTIMATE COMMAND...: the cache folder's name is Kubernetes' version, so a binary that exists is the right one.
build_kube() {
  local estimate=$1 c packages=() ld; shift
  have "$@" && return
  for c in "$@"; do packages+=("k8s.io/kubernetes/cmd/$c"); done
  ld="-X k8s.io/component-base/version.gitVersion=v$KUBE -X k8s.io/component-base/version.gitMajor=${KUBE%%.*}"
  ld+=" -X k8s.io/component-base/version.gitMinor=$(cut -d. -f2 <<<"$KUBE")"
  step "Kubernetes $KUBE: $* ($estimate)" "$1" "have $*" compile "$HERE/src/kube" "$ld" "${packages[@]}"
}

# build_module DIR [PACKAGE]: builds the program of a small module; rebuilt when its sources or pins change.
build_module() {
  local dir=$1 name=${2:-$(basename "$1")} key
  key=$(module_key "$dir" "${2:-}")
  fresh "$name" "$key" && return
  step "$name" "$name" "fresh $name $key" compile "$dir" "" "./${2:-}"
  printf '%s\n' "$key" >"$BIN/.$name.key"
}

module_key() { cat "$1"/go.[ms]* "$1/${2:-.}"/*.go | sha256sum | cut -d" " -f1; }
have() { local c; for c in "$@"; do [[ -x $BIN/$c ]] || return 1; done; }
fresh() { have "$1" && [[ $(cat "$BIN/.$1.key" 2>/dev/null) == "$2" ]]; }

# step TITLE LOG DONE COMMAND...: runs COMMAND under the build lock unless DONE says that another process did it meanwhile.
step() {
  local title=$1 log=$CACHE/log/$2.log done=$3 begin; shift 3
  command -v go >/dev/null || die "go is not in PATH: install Go 1.26 or newer"
  mkdir -p "$BIN" "$CACHE/log" || die "cannot create the build cache $CACHE: set RINGMASTER_CACHE to a folder that can be written"
  (
    flock --nonblock 8 || { say "waiting for another build in $CACHE"; flock 8; }
    $done && exit 0
    begin=$SECONDS
    say "building $title"
    "$@" >"$log" 2>&1 8>&- || { tail -n 20 "$log" >&2; die "building ${title%% (*} failed; the whole log is $log"; }
    say "built ${title%% (*} in $((SECONDS - begin)) s"
  ) 8>"$CACHE/lock" || exit 1
}

# compile DIR LDFLAGS PACKAGE...: static binaries, each named as its package's folder, moved into place at the end.
compile() {
  local dir=$1 ld=$2 tmp; shift 2
  rm -rf "$CACHE"/.build-*
  tmp=$(mktemp -d "$CACHE/.build-XXXXXX")
  (cd "$dir" && GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $ld" -o "$tmp/" "$@") || return 1
  mv -f "$tmp"/* "$BIN/" && rmdir "$tmp"
}
