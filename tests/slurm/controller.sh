#!/usr/bin/env bash
# A real Slurm of one node, this machine, for tests: its own key, ports, state and logs, all below DIR.
#   tests/slurm/controller.sh start DIR    then: export SLURM_CONF=DIR/slurm.conf
#   tests/slurm/controller.sh stop DIR     ends what `start` started, and nothing else
# Needs root and Debian's packages slurm-wlm and munge; tests/slurm/run.sh does both around the tests.
set -euo pipefail

fail() {
    echo "controller.sh: $*" >&2
    exit 1
}

need_packages() {
    export PATH=$PATH:/usr/sbin
    local program
    for program in munged munge slurmctld slurmd sbatch srun sinfo; do
        command -v "$program" >/dev/null ||
            fail "no $program here: apt-get install -y --no-install-recommends slurm-wlm munge"
    done
    [[ $(id -u) == 0 ]] || fail 'slurmd starts jobs for others, so this runs as root'
}

free_ports() {
    python3 -c 'import socket
probes = [socket.socket() for _ in range(2)]
for probe in probes:
    probe.bind(("127.0.0.1", 0))
print(*(probe.getsockname()[1] for probe in probes))'
}

write_conf() {
    local dir=$1 host control daemon
    host=$(hostname -s)
    read -r control daemon <<<"$(free_ports)"
    cat >"$dir/slurm.conf" <<CONF
ClusterName=mmlape
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CryptoType=crypto/munge
SlurmctldPort=$control
SlurmdPort=$daemon
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=600
MailProg=/bin/true
SchedulerParameters=sched_min_interval=100000
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
}

start() {
    local dir=$1
    need_packages
    mkdir -p "$dir/state" "$dir/spool"
    dir=$(cd "$dir" && pwd)
    [[ ! -e $dir/slurm.conf ]] || fail "$dir holds a controller already"
    chmod 755 "$dir"
    write_conf "$dir"
    export SLURM_CONF=$dir/slurm.conf
    (umask 077 && head -c 128 /dev/urandom >"$dir/munge.key")
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
        --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" >/dev/null
    slurmctld -i -f "$SLURM_CONF"
    slurmd -f "$SLURM_CONF" -N "$(hostname -s)"
    local tries
    for ((tries = 0; tries < 60; tries++)); do
        [[ $(sinfo --noheader --format=%T 2>/dev/null) == idle ]] && return
        sleep 0.5
    done
    tail -n 5 "$dir"/*.log >&2
    stop "$dir"
    fail 'the node did not get ready in 30 s; the ends of the logs are above'
}

stop() {
    local dir name pid tries
    dir=$(cd "$1" && pwd)
    export SLURM_CONF=$dir/slurm.conf
    scancel --user=root >/dev/null 2>&1 || true
    for ((tries = 0; tries < 20; tries++)); do
        [[ -z $(squeue --noheader 2>/dev/null) ]] && break
        sleep 0.5
    done
    for name in slurmd slurmctld munged; do
        [[ -s $dir/$name.pid ]] || continue
        pid=$(<"$dir/$name.pid")
        kill "$pid" 2>/dev/null || continue
        for ((tries = 0; tries < 40; tries++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.25
        done
    done
    rm -f "$dir/slurm.conf"
}

[[ $# == 2 && $1 =~ ^(start|stop)$ ]] || fail 'usage: controller.sh start|stop DIR'
"$1" "$2"
