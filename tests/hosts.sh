#!/bin/sh
# sh tests/hosts.sh [--all] [BUILD]: trains on three hosts, by each MPI that is installed and built for.  The hosts are
# network namespaces of this machine on one bridge, with their own names and mounts; each has one rank.
# Their files must have the bytes of one process.  A rank is killed, and hosts have other data or another build.
# --all: also a cable is pulled, a rank hangs, a disk is full; then the bytes that a step sends are counted, and the use
# of lines of 1 Gbit/s.  All processes on all hosts must end in time, and the last checkpoint must be whole.
# Needs root and iproute2.  The last line is "N passed, N failed"; if no host can be made, the line before reports that,
# and both are 0.
set -u
all=
[ "${1:-}" != --all ] || { all=yes && shift; }
cd "$(dirname "$0")/.." || exit 1
build=$(cd "${1:-build}" && pwd) source=$PWD work=$(mktemp -d)
orrery=$build/orrery
. tests/support/mpi.sh

# ---- hosts

hosts="orrery0 orrery1 orrery2"
processes() { for host in $hosts; do ip netns pids "$host"; done 2> /dev/null; }
end_processes() { processes | xargs -r kill -9; }
remove_hosts() {
  end_processes
  for host in $hosts; do ip link delete "to_$host"; ip netns delete "$host"; done
  ip link delete orrery_bridge
} 2> /dev/null
clean_up() {
  remove_hosts
  umount "$work/small" 2> /dev/null
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
make_hosts() {
  ip link add orrery_bridge type bridge && ip link set orrery_bridge up || return 1
  echo "127.0.0.1 localhost" > "$work/hosts"
  number=1
  for host in $hosts; do
    ip netns add "$host" && ip link add "to_$host" type veth peer name eth0 netns "$host" &&
      ip link set "to_$host" master orrery_bridge up && ip -n "$host" address add 10.97.0.$number/24 dev eth0 &&
      ip -n "$host" link set eth0 up && ip -n "$host" link set lo up || return 1
    echo "10.97.0.$number $host" >> "$work/hosts"
    number=$((number + 1))
  done
}
# Runs a command on a host as ssh does: AGENT OPTIONS... HOST COMMAND...; first what the file on_HOST has.
cat > "$work/agent" << END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
exec ip netns exec "\$host" unshare --uts sh -c "
  hostname \$host && mount --bind $work/hosts /etc/hosts && cd $work && if [ -e on_\$host ]; then . ./on_\$host; fi
  \$*"
END
chmod +x "$work/agent"
remove_hosts
if ! make_hosts; then
  echo "no network namespaces can be made: root and iproute2 are needed"
  echo "0 passed, 0 failed"
  exit
fi

# ---- runs

cd "$work" || exit 1
awk 'BEGIN { for (i = 0; i < 300; ++i) printf "line %d of a text, %d\n", i, i * 7919 % 101 }' > text.txt
small="--data=text.txt --model=gpt --layers=2 --heads=2 --width=32 --context=16 --batch_size=2 --threads=1
  --gradient_accumulation_steps=8 --gradient_parts=8 --dropout=0.1 --checkpoint_every=5 --keep_checkpoints=0
  --warmup_steps=2"
# start MPI ARGUMENTS...: trains on the three hosts; the launcher and rank 0 are on the first.
start() {
  by=$1
  shift
  case $by in
    openmpi)
      "$work/agent" orrery0 exec mpirun.openmpi --tune "$source/examples/configs/hosts.tune" \
        --host orrery0,orrery1,orrery2 --bind-to none --mca plm_rsh_agent "$work/agent" \
        --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca btl tcp,self "$orrery" train "$@"
      ;;
    mpich)  # UCX takes shared memory for a network between namespaces
      "$work/agent" orrery0 UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 exec mpirun.mpich \
        -hosts orrery0,orrery1,orrery2 -n 3 -launcher ssh -launcher-exec "$work/agent" -iface eth0 \
        "$orrery" train "$@"
      ;;
  esac
}
# ranks [HOST]: the processes of orrery on this host, or on all.
ranks() {
  for pid in $(if [ $# = 0 ]; then processes; else ip netns pids "$1"; fi); do
    if grep -aq "^$orrery" "/proc/$pid/cmdline" 2> /dev/null; then echo "$pid"; fi
  done
}
# all_end WHAT SECONDS [ranks]: all processes, or all ranks, end within this time.
all_end() {
  begin=$(date +%s)
  while took=$(($(date +%s) - begin)) && [ $took -le "$2" ] && [ -n "$(${3:-processes})" ]; do sleep 0.2; done
  [ -z "$(${3:-processes})" ]
  status=$?
  judge "$1: all processes end, after $took s" $status
  [ $status = 0 ] || ps -o pid,etimes,args -p "$(processes | paste -sd ,)"
  end_processes
}
weights() { sha256sum < "$1/step_$2/weights.safetensors"; }
# resumes WHAT RUN: one process resumes the last checkpoint.
resumes() {
  last=$(ls -d "$2"/step_?????? 2> /dev/null | tail -n 1)
  steps=$(($(expr "${last#*step_}" + 0) + 5))
  # shellcheck disable=SC2086
  "$orrery" train $small --out="$2" --resume=yes --steps=$steps > resumed.log 2>&1
  code=$?
  if [ $code = 3 ]; then code=0; fi
  judge "$1: its last checkpoint is resumed" $code
  [ $code = 0 ] || tail -n 3 resumed.log
}
# disturbed WHAT MPI WAIT_LIMIT SAID COMMAND [ranks]: the command is run after the first checkpoint; all processes, or
# all ranks, end within the limit plus ten seconds, and the text is printed once.
disturbed() {
  what="$1, $2" run=run.$2.$(echo "$1" | tr ' ' _)
  # shellcheck disable=SC2086
  start "$2" $small --out="$run" --steps=4000 --wait_limit="$3" > "$run.log" 2>&1 &
  for _ in $(seq 300); do [ -e "$run/step_000005" ] && break; sleep 0.1; done
  eval "$5"
  all_end "$what" $(($3 + 10)) "${6:-processes}"
  wait
  # A host that was away is not looked for again at once.
  for host in $hosts; do ip link set "to_$host" up && ip -n "$host" neighbour flush all; done
  sleep 1
  [ "$(grep -c -- "$4" "$run.log")" = 1 ]
  status=$?
  judge "$what: the log has '$4' once" $status
  [ $status = 0 ] || tail -n 20 "$run.log"
  resumes "$what" "$run"
}
# refused WHAT MPI TEXT: a run does not start, with this text in its error message, and nothing is written.
refused() {
  # shellcheck disable=SC2086
  start "$2" $small --out=refused --steps=5 > refused.log 2>&1
  [ $? = 1 ] && [ "$(grep -c -- "$3" refused.log)" = 1 ] && [ ! -e refused/metrics.jsonl ]
  status=$?
  judge "$1, $2: refused" $status
  [ $status = 0 ] || cat refused.log
  all_end "$1, $2" 5
}

# shellcheck disable=SC2086
"$orrery" train $small --out=one --steps=20 > one.log 2>&1
cp text.txt other.txt && echo "another line" >> other.txt
library=$(readlink -f "$build/liborrery_models.so")
sources=$("$orrery" --version | awk '$1 == "sources" { print $2 }')
LC_ALL=C sed "s/$sources/000000000000/" "$library" > other_library
for mpi in $mpis; do
  # shellcheck disable=SC2086
  start "$mpi" $small --out="three.$mpi" --steps=20 > "three.$mpi.log" 2>&1
  [ "$(weights one 000020)" = "$(weights "three.$mpi" 000020)" ] && grep -q "3 ranks" "three.$mpi.log"
  status=$?
  judge "$mpi, three hosts: the bytes of one process" $status
  [ $status = 0 ] || tail -n 20 "three.$mpi.log"
  # shellcheck disable=SC2016
  disturbed "a rank is killed" "$mpi" 6 "$([ "$mpi" = openmpi ] && echo "signal 9" || echo "EXIT CODE: 9")" \
    'kill -9 $(ranks orrery1)'
  echo "mount --bind other.txt text.txt" > on_orrery2
  refused "other data" "$mpi" "rank 2 (host orrery2) differs from rank 0 (host orrery0) in training data"
  echo "mount --bind other_library $library" > on_orrery2
  refused "another build" "$mpi" "rank 2 (host orrery2) differs from rank 0 (host orrery0) in .*sources 000000000000"
  rm on_orrery2
done

# ---- what takes longer

# bytes_sent: by all hosts so far, without the 66 bytes of headers of a packet and without what was sent again.
bytes_sent() {
  for host in $hosts; do
    ip netns exec "$host" sh -c "cd /sys/class/net/eth0/statistics && cat tx_bytes tx_packets"
    ip netns exec "$host" awk '$1 == "Tcp:" { again = $13 } END { print again }' /proc/net/snmp
  done | awk '{ sum += NR % 3 == 1 ? $1 : NR % 3 == 2 ? -66 * $1 : -1448 * $1 } END { printf "%.0f\n", sum }'
}
# All that the hosts have sent and received: a line for each host and direction.
counters() {
  for host in $hosts; do ip netns exec "$host" sh -c "cat /sys/class/net/eth0/statistics/[rt]x_bytes"; done
}
large="--data=text.txt --model=gpt --layers=2 --heads=8 --width=512 --context=8 --batch_size=1 --threads=1
  --metrics_every=0 --warmup_steps=2"
# counted MPI PARTS NODES: with three ranks, each of which sends this number of nodes of the tree of parts.
counted() {
  for steps in 2 12; do
    before=$(bytes_sent)
    # shellcheck disable=SC2086
    start "$1" $large --gradient_accumulation_steps="$2" --gradient_parts="$2" --out="counted.$1.$2.$steps" \
      --steps=$steps > counted.log 2>&1
    eval "sent_in_$steps=$(($(bytes_sent) - before))"
  done
  parameters=$(sed -n 's/^model: \([0-9,]*\) parameters.*/\1/p' counted.log | tr -d ,)
  of_step=$(((sent_in_12 - sent_in_2) / 10)) expected=$(((${3} + 1) * 2 * 4 * parameters))
  echo "$1, $2 parts: a step of $parameters parameters sends $of_step bytes on three hosts, by the formula $expected"
  [ $of_step -ge $expected ] && [ $of_step -le $((expected + expected / 100)) ]
  judge "$1, $2 parts: the bytes of a step" $?
}
# line MPI: the use of a line of 1 Gbit/s in both directions, with the time that the steps compute.  The ranks run
# before other programs of this machine.
line() {
  chrt --rr -p 1 $$
  for host in $hosts; do
    tc -n "$host" qdisc add dev eth0 root tbf rate 1gbit burst 256kb latency 20ms
    tc qdisc add dev "to_$host" root tbf rate 1gbit burst 256kb latency 20ms
  done
  # shellcheck disable=SC2086
  start "$1" $large --gradient_accumulation_steps=3 --gradient_parts=3 --out="line.$1" --steps=100000 > line.log 2>&1 &
  for _ in $(seq 100); do grep -qs '"step":5,' "line.$1/metrics.jsonl" && break; sleep 0.2; done
  counters > before && began=$(date +%s%N)
  sleep 10
  counters > after && took=$(($(date +%s%N) - began))
  end_processes
  wait
  chrt --other -p 0 $$
  for host in $hosts; do tc -n "$host" qdisc delete dev eth0 root && tc qdisc delete dev "to_$host" root; done
  percent=$(paste before after | awk -v s=$took '{ print int(($2 - $1) * 8 / s * 100) }' | sort -n | head -n 1)
  echo "$1: $percent % of 1 Gbit/s, in the direction of the host that uses it least"
  [ "$percent" -ge 50 ]
  judge "$1: a line of 1 Gbit/s" $?
}
# full_disk MPI: rank 0's disk takes two checkpoints.
full_disk() {
  mkdir -p small && mount -t tmpfs -o size=1m tmpfs small
  # shellcheck disable=SC2086
  start "$1" $small --out=small/run --steps=4000 > full.log 2>&1
  [ $? = 1 ] && [ "$(grep -c "No space left on device" full.log)" = 1 ]
  status=$?
  judge "a full disk, $1: the log has 'No space left on device' once" $status
  [ $status = 0 ] || cat full.log
  all_end "a full disk, $1" 5
  cp -r small/run "full.$1" && umount small
  resumes "a full disk, $1" "full.$1"
}
for mpi in $(if [ -n "$all" ]; then echo "$mpis"; fi); do
  lost="no word from .*rank 2 (host orrery2) for 6 s, in step"  # a busy host may be slow to answer
  case $mpi in
    # Its launcher notices by the keepalive of hosts.tune, which takes 25 s.
    openmpi) disturbed "a cable is pulled" openmpi 40 "lost communication with" 'ip link set to_orrery2 down' ;;
    # Its launcher waits for the lost host: only ranks must end.
    mpich) disturbed "a cable is pulled" mpich 6 "$lost" 'ip link set to_orrery2 down' ranks ;;
  esac
  # shellcheck disable=SC2016
  disturbed "a rank hangs" "$mpi" 6 "${lost%%rank*}rank 1 (host orrery1) for 6 s, in step" 'kill -STOP $(ranks orrery1)'
  full_disk "$mpi"
  counted "$mpi" 3 1
  counted "$mpi" 9 2
  line "$mpi"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
