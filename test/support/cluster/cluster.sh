#!/usr/bin/env bash
# A real Kubernetes for end-to-end tests on a machine without Docker, from Go modules and Debian packages.
#
#   cluster.sh build              compile the components, kubectl and helm into $CACHE (about 6 minutes on 2 cores once; then seconds)
#   cluster.sh up                 etcd, kube-apiserver and kube-controller-manager on loopback: no root needed, ready in 5 s
#   cluster.sh up-node            the same inside a network namespace of its own, with scheduler, containerd,
#                                 kubelet and kube-proxy: pods really run. Needs root and the packages below
#   cluster.sh load IMAGE.tar     put an image (docker-archive) on the node
#   cluster.sh exec CMD …         run a command where the cluster's addresses are reachable, KUBECONFIG set
#   cluster.sh down               stop all that this script started, and nothing else
#
# WORK  state directory (default ./.cluster)      CACHE  where the binaries are kept (default ${XDG_CACHE_HOME:-~/.cache}/keyturn-e2e)
# Packages for up-node: containerd runc containernetworking-plugins iptables iproute2 buildah
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
WORK=$(mkdir -p "${WORK:-.cluster}" && cd "${WORK:-.cluster}" && pwd)
CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/keyturn-e2e}
KUBE_VERSION=v$(sed -n 's#^\s*k8s.io/kubernetes v##p' "$here/go.mod" | head -1)
HELM_VERSION=v4.3.1
NS=e2e-$(basename "$WORK" | tr -cd 'a-z0-9' | cut -c1-10)
NODE_IP=10.99.0.1
kube=$CACHE/kubernetes-$KUBE_VERSION

in_net() { ( exec_in_net "$@" ); }
exec_in_net() { if [ -f "$WORK/netns" ]; then exec nsenter --net="/var/run/netns/$(cat "$WORK/netns")" "$@"; else exec "$@"; fi; }

start() { # NAME CMD…: in the background, its pid and log kept in $WORK
  local name=$1; shift
  ( exec_in_net "$@" ) >"$WORK/$name.log" 2>&1 </dev/null &
  echo $! >"$WORK/$name.pid"
}

wait_for() { # SECONDS WHAT CMD…
  local deadline=$(( $(date +%s) + $1 )) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    if [ "$(date +%s)" -ge "$deadline" ]; then echo "cluster.sh: $what is not ready; see $WORK/*.log" >&2; exit 1; fi
    sleep 0.2
  done
}

kc() { in_net "$CACHE/kubectl" --kubeconfig "$WORK/kubeconfig" "$@"; }

build() {
  mkdir -p "$CACHE"
  if [ ! -x "$kube" ]; then
    (cd "$here" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$KUBE_VERSION" -o "$kube.new" . && mv "$kube.new" "$kube")
  fi
  [ -x "$CACHE/pause" ] || (cd "$here/pause" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$CACHE/pause" main.go)
  [ -x "$CACHE/kubectl" ] || (cd "$here/kubectl" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$KUBE_VERSION" -o "$CACHE/kubectl" .)
  [ -x "$CACHE/helm" ] || GOBIN=$CACHE CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' "helm.sh/helm/v4/cmd/helm@$HELM_VERSION"
}

control_plane() { # ADDRESS PORT
  local address=$1 port=$2
  local etcd_port=$((port + 1)) peer_port=$((port + 2))
  mkdir -p "$WORK/pki"
  [ -f "$WORK/pki/sa.key" ] || openssl genrsa -out "$WORK/pki/sa.key" 2048 2>/dev/null
  echo 'e2e-admin-token,admin,admin,"system:masters"' >"$WORK/pki/tokens.csv"
  cat >"$WORK/kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "https://$address:$port", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: e2e-admin-token}}]
contexts: [{name: e2e, context: {cluster: e2e, user: admin}}]
current-context: e2e
YAML
  start etcd "$kube" etcd --data-dir "$WORK/etcd" --unsafe-no-fsync --quota-backend-bytes 8589934592 --log-level warn \
    --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" --listen-peer-urls "http://127.0.0.1:$peer_port"
  start kube-apiserver "$kube" kube-apiserver --etcd-servers "http://127.0.0.1:$etcd_port" --bind-address "$address" --advertise-address "$address" --secure-port "$port" \
    --cert-dir "$WORK/pki" --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$WORK/pki/sa.key" --service-account-signing-key-file "$WORK/pki/sa.key" \
    --token-auth-file "$WORK/pki/tokens.csv" --authorization-mode Node,RBAC --service-cluster-ip-range 10.96.0.0/24 --allow-privileged --kubelet-preferred-address-types InternalIP
  wait_for 60 kube-apiserver kc get --raw /readyz
  start kube-controller-manager "$kube" kube-controller-manager --kubeconfig "$WORK/kubeconfig" --leader-elect=false --use-service-account-credentials \
    --service-account-private-key-file "$WORK/pki/sa.key" --root-ca-file "$WORK/pki/apiserver.crt" --bind-address 127.0.0.1 --secure-port "$((port + 3))"
  wait_for 30 'the default service account' kc get serviceaccount default
}

node() {
  mkdir -p "$WORK/cni" "$WORK/containerd"
  cat >"$WORK/cni/10-bridge.conflist" <<'JSON'
{"cniVersion":"1.0.0","name":"e2e","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"hairpinMode":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
JSON
  cat >"$WORK/containerd.toml" <<TOML
version = 2
root = "$WORK/containerd/root"
state = "$WORK/containerd/state"
[grpc]
  address = "$WORK/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$WORK/cni"
TOML
  cat >"$WORK/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix://$WORK/containerd/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
localStorageCapacityIsolation: false
enforceNodeAllocatable: []
evictionHard: {memory.available: "100Mi"}
YAML
  start containerd containerd -c "$WORK/containerd.toml"
  wait_for 30 containerd ctr -a "$WORK/containerd/containerd.sock" version
  printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' >"$WORK/pause.Dockerfile"
  buildah bud --isolation chroot -q -f "$WORK/pause.Dockerfile" -t localhost/pause:1 "$CACHE" >/dev/null
  rm -f "$WORK/pause.tar"; buildah push -q localhost/pause:1 "docker-archive:$WORK/pause.tar:localhost/pause:1"
  load "$WORK/pause.tar"
  start kube-scheduler "$kube" kube-scheduler --kubeconfig "$WORK/kubeconfig" --leader-elect=false
  start kubelet "$kube" kubelet --config "$WORK/kubelet.yaml" --kubeconfig "$WORK/kubeconfig" --node-ip "$NODE_IP" --hostname-override node1 --root-dir "$WORK/kubelet" --cert-dir "$WORK/pki/kubelet"
  start kube-proxy "$kube" kube-proxy --kubeconfig "$WORK/kubeconfig" --hostname-override node1 --cluster-cidr 10.244.0.0/24 --proxy-mode iptables --conntrack-max-per-core 0
  wait_for 60 'the node object' kc get node node1
  kc wait --for=condition=Ready node/node1 --timeout=60s >/dev/null
}

load() { ctr -a "$WORK/containerd/containerd.sock" -n k8s.io images import "$1" >/dev/null; }

up() { build; control_plane 127.0.0.1 "${PORT:-16443}"; echo "KUBECONFIG=$WORK/kubeconfig"; }

up_node() {
  build
  ip netns add "$NS"; echo "$NS" >"$WORK/netns"
  in_net ip link set lo up
  in_net ip link add node0 type veth peer name node1
  in_net ip addr add "$NODE_IP/24" dev node0
  in_net ip link set node0 up; in_net ip link set node1 up
  in_net ip route add default via 10.99.0.254 dev node0
  in_net sysctl -qw net.ipv4.ip_forward=1
  control_plane "$NODE_IP" 6443
  node
  echo "KUBECONFIG=$WORK/kubeconfig, reachable with: cluster.sh exec CMD"
}

stop() { # NAME
  [ -f "$WORK/$1.pid" ] || return 0
  local pid; pid=$(cat "$WORK/$1.pid"); rm -f "$WORK/$1.pid"
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  kill -9 "$pid" 2>/dev/null || true
}

down() {
  stop kubelet; stop kube-proxy; stop kube-scheduler; stop kube-controller-manager
  local socket=$WORK/containerd/containerd.sock
  if [ -S "$socket" ]; then
    for task in $(ctr -a "$socket" -n k8s.io tasks ls -q 2>/dev/null); do ctr -a "$socket" -n k8s.io tasks kill -s SIGKILL "$task" 2>/dev/null || true; done
    sleep 1
    for task in $(ctr -a "$socket" -n k8s.io tasks ls -q 2>/dev/null); do ctr -a "$socket" -n k8s.io tasks rm -f "$task" 2>/dev/null || true; done
  fi
  stop containerd; stop kube-apiserver; stop etcd
  awk -v work="$WORK/" 'index($2, work) == 1 {print $2}' /proc/mounts | sort -r | while read -r mount; do umount -l "$mount" 2>/dev/null || true; done
  if [ -f "$WORK/netns" ]; then
    for cni in $(ip netns list | awk '/^cni-/{print $1}'); do
      # Only pod namespaces that nothing lives in any more.
      if [ -z "$(ip netns pids "$cni")" ]; then ip netns del "$cni" || true; fi
    done
    ip netns del "$(cat "$WORK/netns")" || true
  fi
  rm -rf "$WORK"
}

case "${1:-}" in
  build) build ;;
  up) up ;;
  up-node) up_node ;;
  load) load "$2" ;;
  exec) shift; KUBECONFIG=$WORK/kubeconfig PATH=$CACHE:$PATH in_net "$@" ;;
  down) down ;;
  *) sed -n '2,14p' "$0" >&2; exit 2 ;;
esac
