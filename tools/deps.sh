#!/usr/bin/env bash
# Installs what the tests need: Debian packages, and the real Prometheus,
# Alertmanager and etcd (with e2e kube-apiserver, too), built once into the folder
# given (their versions are pinned by tools/*/go.mod). What cannot be installed is named; its tests are then
# skipped, or fail when CI=true.
set -euo pipefail
cache=${1:?usage: deps.sh CACHE_DIR [e2e]}
cd "$(dirname "$0")"

# Debian packages: the command that shows a package is there, then its name.
want=()
need() { command -v "$1" >/dev/null 2>&1 || want+=("$2"); }
need prometheus-node-exporter prometheus-node-exporter
need slurmctld slurmctld
need slurmd slurmd
need scontrol slurm-client
need munged munge
need snmpd snmpd
need /lib/nut/upsd nut-server
need ip iproute2
need ipmi_sim openipmi
need journalctl systemd
[[ -x /usr/lib/systemd/systemd-journal-remote || -x /lib/systemd/systemd-journal-remote ]] || want+=(systemd-journal-remote)
if ((${#want[@]})); then
  sudo=""
  [[ $(id -u) == 0 ]] || sudo=$(command -v sudo || true)
  if command -v apt-get >/dev/null && { [[ $(id -u) == 0 ]] || [[ -n $sudo ]]; }; then
    $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
  else
    echo "deps: please install: ${want[*]} (no apt-get here); their tests will be skipped" >&2
  fi
fi

# build NAME VERSION TAGS PACKAGE...: into $cache/NAME-VERSION, once.
build() {
  local name=$1 version=$2 tags=$3 dir
  shift 3
  dir=$cache/$name-$version
  [[ -e $dir/.done ]] && return
  mkdir -p "$dir"
  echo "deps: building $name $version (once, some minutes)"
  (cd "$name" && go build -tags "$tags" -ldflags '-s -w' -o "$dir/" "$@")
  touch "$dir/.done"
}
# Of the discoveries only those that a recipe uses: each brings its cloud's library.
build prometheus v0.316.0-sd remove_all_sd,enable_consul_sd,enable_kubernetes_sd github.com/prometheus/prometheus/cmd/prometheus github.com/prometheus/prometheus/cmd/promtool
[[ ${2:-} != e2e ]] || build kubernetes v1.37.2 "" k8s.io/kubernetes/cmd/kube-apiserver
build etcd v3.7.3 "" go.etcd.io/etcd/server/v3
build alertmanager v0.31.0 "" github.com/prometheus/alertmanager/cmd/alertmanager github.com/prometheus/alertmanager/cmd/amtool
