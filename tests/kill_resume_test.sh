#!/bin/sh
# sh tests/kill_resume_test.sh N [BUILD]: kills a small run N times at random moments (kill -9), often while it writes a
# checkpoint, and resumes it; its folder must end with the bytes of an uninterrupted run.  Then N pairs of runs start
# at once in one folder: one must finish undisturbed, the other must be refused.
# MPI=openmpi or MPI=mpich in the environment: each start has 2, 3 or 4 ranks at random, of which any one is killed; the
# bytes are still those of one process.
# The last line is "N passed, N failed"; SEED=2 in the environment gives other moments.
set -u
count=${1:?usage: sh tests/kill_resume_test.sh N [BUILD]}
cd "$(dirname "$0")/.." || exit 1
orrery=$(cd "${2:-build}" && pwd)/orrery
work=$(mktemp -d) MPI=${MPI:-} ranks=2
. tests/support/mpi.sh
trap 'rm -rf "$work"' EXIT
give_up() {
  cat "$work/log"
  echo "$1"
  echo "0 passed, 1 failed"
  exit 1
}
c++ -O1 -shared -fPIC -o "$work/slow.so" tests/kill/slow_files.cpp -ldl > "$work/log" 2>&1 || give_up "no slow files"
cd "$work" || exit 1
awk 'BEGIN { for (i = 0; i < 100; ++i) printf "line %d of a text, %d\n", i, i * 7919 % 101 }' > text.txt
cat > kill.toml << 'END'
data = "../text.txt"
out = "run"
layers = 1
heads = 2
width = 16
context = 8
batch_size = 2
threads = 1
steps = 40
checkpoint_every = 3
evaluate_every = 20
keep_checkpoints = 2
dropout = 0.1
END
[ -z "$MPI" ] || printf 'gradient_accumulation_steps = 4\ngradient_parts = 4\n' >> kill.toml

# Exit codes of a complete run; 3: it was too short to learn anything.
complete() { [ "$1" = 0 ] || [ "$1" = 3 ]; }
# Each round has its own folder; paths in the files are relative, so they are equal in all.
enter() { mkdir "$work/$1" && cd "$work/$1" || exit 1; }
leave() { cd "$work" && rm -rf "${work:?}/$1"; }
slow_train() {
  [ -n "$MPI" ] || exec env LD_PRELOAD="$work/slow.so" "$orrery" train --config=../kill.toml "$@"
  # shellcheck disable=SC2016
  set -- -n "$ranks" sh -c 'echo $$ > "pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" && LD_PRELOAD=$0 exec "$@"' \
    "$work/slow.so" "$orrery" train --config=../kill.toml "$@"
  [ "$MPI" = mpich ] || set -- --oversubscribe --bind-to none "$@"
  "mpirun.$MPI" "$@"
  code=$?
  [ $code != 9 ] || code=137  # MPICH gives the signal
  return $code
}
# draw N: one of 0 to N - 1, another for each kill.
draw() { awk -v n="$1" -v at="${SEED:-1}000$killed" 'BEGIN { srand(at); print int(rand() * n) }'; }
# The process to kill: the one that was started or, when it has started, any rank.
victim() {
  [ -n "$MPI" ] || { echo "$1" && return; }
  rank=pid.$(draw "$ranks")
  for _ in $(seq 100); do [ -s "$rank" ] && break; sleep 0.1; done
  cat "$rank"
}

# Prints the files of a run and their hash, without values that depend on the clock.
digest() {
  (cd run && ls -A && find . -name '*.safetensors' -o -name state.json | sort | xargs cat | sha256sum &&
    sed 's/,"step_ms":.*//' metrics.jsonl)
}
passed=0 failed=0
# judge WHAT STATUS EXPECTED: checks and counts a run that has ended.
judge() {
  digest > ../found 2>&1
  if complete "$2" && cmp -s "../$3" ../found; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "LOST: $1, exit code $2"
    cat log
    diff "../$3" ../found
  fi
}

enter whole
began=$(date +%s%N)
(MPI='' && slow_train) > ../log 2>&1 || complete $? || give_up "the undisturbed run failed"
most=$(($(date +%s%N) - began))
digest > ../expected
awk -v n="$count" -v seed="${SEED:-1}" -v most="$most" \
  'BEGIN { srand(seed); for (i = 0; i < n; ++i) printf "%.3f\n", rand() * most / 1e9 }' > ../moments

killed=0 rounds=0 inside=0
while [ $killed -lt "$count" ]; do
  rounds=$((rounds + 1)) kills=0 status=137
  enter round
  while [ $status = 137 ]; do  # three kills, then it may finish
    resume=no
    for checkpoint in run/step_??????; do [ ! -d "$checkpoint" ] || resume=yes; done
    [ -z "$MPI" ] || { ranks=$((2 + $(draw 3))) && rm -f pid.*; }
    (slow_train --resume=$resume) > log 2>&1 &
    started=$!
    if [ $kills -lt 3 ] && [ $killed -lt "$count" ]; then
      kills=$((kills + 1)) killed=$((killed + 1)) process=$(victim $started)
      sleep "$(sed -n ${killed}p ../moments)"
      kill -9 "$process" 2> ../ignored
    fi
    wait $started 2> ../ignored
    status=$?
    for partial in run/*.partial; do
      [ ! -e "$partial" ] || { inside=$((inside + 1)) && break; }
    done
  done
  judge "round $rounds of kills" $status expected
  leave round
done
echo "$killed kills of $rounds runs, $inside inside the writing or removing of a checkpoint"

for seed in 1 2; do
  enter seed$seed
  (slow_train --steps=6 --seed=$seed) > ../log 2>&1 || complete $? || give_up "the undisturbed run failed"
  digest > ../expected$seed
done
pair=0
while [ $pair -lt "$count" ]; do
  pair=$((pair + 1))
  enter pair
  (slow_train --steps=6 --seed=1) > log1 2>&1 &
  one=$!
  (slow_train --steps=6 --seed=2) > log2 2>&1 &
  wait $one
  first=$?
  wait $!
  second=$?
  cat log1 log2 > log
  winner=1
  complete $first || winner=2
  grep -q -e 'is in use by another program' -e 'already holds a run' log || second=9
  judge "pair $pair" $((first + second - 1)) expected$winner
  leave pair
done
echo "$pair pairs of runs in one folder"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
