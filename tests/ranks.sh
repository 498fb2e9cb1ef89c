#!/bin/sh
# sh tests/ranks.sh [BUILD]: trains small runs of every task, dtype and optimizer in one process and on 2, 3, 4 and 8
# ranks, by each MPI that is installed and built for: every file of the run must have the same bytes, except for
# times.  Then runs are interrupted and resumed with other numbers of ranks, and errors on one rank must end all.
# The last line is "N passed, N failed".
set -u
cd "$(dirname "$0")/.." || exit 1
orrery=$(cd "${1:-build}" && pwd)/orrery work=$(mktemp -d)
. tests/support/mpi.sh
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# launcher MPI N: its words; none for N = 1.
launcher() {
  case $1-$2 in
    *-1) ;;
    openmpi-*) echo "mpirun.openmpi -n $2 --oversubscribe --bind-to none" ;;
    mpich-*) echo "mpirun.mpich -n $2" ;;
  esac
}
# on MPI N COMMAND...: by that launcher.
on() {
  words=$(launcher "$1" "$2")
  shift 2
  # shellcheck disable=SC2086
  $words "$@"
}
if [ -z "$mpis" ]; then
  echo "no MPI is installed, or the build has none: install openmpi-bin and libopenmpi-dev, and build again"
  echo "0 passed, 1 failed"
  exit 1
fi

# ---- data

awk 'BEGIN { for (i = 0; i < 300; ++i) printf "line %d of a text, %d\n", i, i * 7919 % 101 }' > text.txt
awk 'BEGIN { for (i = 0; i < 120; ++i) printf "a %d b %d\t%d y %d x\n", i % 7, i % 5, i % 5, i % 7 }' > pairs.tsv
mkdir images && python3 - << 'END'
import random, struct
random.seed(1)
for split, count in ("train", 60), ("t10k", 20):
    labels = [i % 3 for i in range(count)]
    pixels = bytes(min(255, 60 * y + random.randrange(80)) for y in labels for _ in range(64))
    with open(f"images/{split}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 8, 8) + pixels)
    with open(f"images/{split}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(labels))
END

# ---- runs

every="--out=run --evaluate_every=3 --checkpoint_every=3 --keep_checkpoints=0 --metrics_every=2 --threads=1"
every="$every --warmup_steps=2"
# Prints what a run wrote and its hash, without values that depend on the clock.
digest() {
  (cd "$1/run" && ls &&
    find . -name '*.safetensors' -o -name '*.json' -o -name settings.toml | sort | xargs sha256sum &&
    sed -E 's/"(step_ms|mfu|[a-z_]+_per_second)":[^,}]*,?//g' metrics.jsonl)
}
# train FOLDER MPI N ARGUMENTS...: a run in FOLDER/run; exit code 3 means that it was too short to learn anything.
train() {
  folder=$1 by=$2 n=$3
  shift 3
  mkdir -p "$folder"
  # shellcheck disable=SC2086
  (cd "$folder" && on "$by" "$n" "$orrery" train $every "$@" > log 2>&1)
  code=$?
  [ $code = 0 ] || [ $code = 3 ]
}
# compare WHAT FOLDER ONE: the run of FOLDER has the bytes of ONE.
compare() {
  digest "$3" > expected 2>&1
  digest "$2" > found 2>&1
  cmp -s expected found
  same=$?
  judge "$1" $same
  [ $same = 0 ] || { diff expected found | head -n 8; tail -n 5 "$2/log"; }
}
# equal NAME STEPS ARGUMENTS...: on all numbers of ranks, and interrupted on one number and resumed on another.
equal() {
  name=$1 steps=$2
  shift 2
  train "$name.1" none 1 "$@" --steps="$steps" || { judge "$name in one process" 1; tail -n 5 "$name.1/log"; return; }
  for mpi in $mpis; do
    for n in 2 3 4 8; do
      [ "$n" -le 4 ] || [ "$name" = text ] || continue
      [ "$mpi" = openmpi ] || [ "$n" = 3 ] || continue
      train "$name.$mpi.$n" $mpi $n "$@" --steps="$steps"
      compare "$name on $n ranks of $mpi" "$name.$mpi.$n" "$name.1"
    done
  done
  # The schedule of an interrupted run is that of the whole: it is stopped by a checkpoint's removal.
  first=${mpis# } && first=${first%% *}
  cp -r "$name.1" "$name.resumed" && rm -rf "$name.resumed/run/step_00000$steps"
  train "$name.resumed" "$first" 3 "$@" --steps="$steps" --resume=yes
  compare "$name resumed on 3 ranks" "$name.resumed" "$name.1"
}
gpt="--model=gpt --layers=2 --heads=2 --width=32 --context=16 --batch_size=2 --gradient_accumulation_steps=9"
gpt="$gpt --gradient_parts=8 --dropout=0.1 --data=../text.txt"
# shellcheck disable=SC2086
{
  equal text 6 $gpt
  equal bf16 6 $gpt --dtype=bf16
  equal f64 6 $gpt --dtype=f64 --optimizer=lion
  equal muon 6 $gpt --optimizer=muon --learning_rate=0.02
  equal adagrad 6 $gpt --optimizer='adagrad(grad_clip=0.01)' --grad_clip=0
  equal sgd 6 $gpt --optimizer='sgd(momentum=0.9)' --documents=no --grad_clip=0.1
  equal streams 6 --model=stream --layers=1 --heads=2 --width=16 --context=8 --cache_length=16 --batch_size=2 \
    --attention='softmax(span=adaptive_span(16))' --gradient_accumulation_steps=4 --gradient_parts=4 --data=../text.txt
  equal translation 6 --model=encoder_decoder --layers=1 --heads=2 --width=16 --context=24 --batch_size=2 \
    --gradient_accumulation_steps=5 --gradient_parts=5 --data=../pairs.tsv --tokenizer=character
  equal images 6 --model=resnet --width=4 --batch_size=4 --gradient_accumulation_steps=4 --gradient_parts=4 \
    --data=../images --mixup=0.2 --crop_padding=1
  equal vit 6 --model=vit --layers=1 --heads=2 --width=16 --batch_size=4 --gradient_accumulation_steps=6 \
    --gradient_parts=4 --data=../images --dtype=bf16
  equal algorithmic 6 --model=gpt --task=algorithmic --layers=1 --heads=2 --width=16 --batch_size=2 \
    --gradient_accumulation_steps=4 --gradient_parts=4 --normalization=batch
}

# finds NAME ARGUMENTS...: --nan_guard finds the same value on all numbers of ranks, and saves the same state.
finds() {
  name=$1
  shift
  train "$name.1" none 1 "$@" --nan_guard=yes --steps=9
  [ -e "$name.1/run/replay/found.json" ]
  judge "$name finds a value" $?
  for n in 2 3; do
    train "$name.$n" "$first" $n "$@" --nan_guard=yes --steps=9
    compare "$name on $n ranks" "$name.$n" "$name.1"
  done
}
# shellcheck disable=SC2086
{
  finds forward $gpt --attention='pointwise(exp,scale=1e6)' --initialization=1
  finds update $gpt --optimizer=sgd --learning_rate=1e30 --lr_scales='*=1e9' --warmup_steps=0
  finds update_of_bf16 $gpt --optimizer='sgd(momentum=0.9)' --learning_rate=1e30 --warmup_steps=0 \
    --lr_scales='blocks.1.feed_forward.*=1e9' --dtype=bf16
}

# ---- errors

# says WHAT MPI N EXIT TEXT ARGUMENTS...: ends with this exit code, and says the text once.
says() {
  what=$1 by=$2 n=$3 exit=$4 text=$5
  shift 5
  on "$by" "$n" "$@" > said 2>&1
  code=$?
  [ "$code" = "$exit" ] && [ "$(grep -c -- "$text" said)" = 1 ]
  status=$?
  judge "$what, with $by" $status
  [ $status = 0 ] || { echo "exit $code:"; cat said; }
}
# ends NAME MPI SIGNAL WHOM: a run on 3 ranks gets the signal after its first checkpoint, one rank or the launcher. All
# its processes end, and resumed on 2 ranks it has the bytes of an undisturbed one.
ranks_of_run="^$orrery train --out=run .*--wait_limit=3"
ends() {
  name=ended.$1.$2 by=$2 signal=$3 whom=$4
  mkdir "$name"
  # shellcheck disable=SC2086
  (cd "$name" && on "$by" 3 "$orrery" train $every $gpt --steps=120 --wait_limit=3 > log 2>&1) &
  runs=$!
  for _ in $(seq 200); do [ -e "$name/run/step_000003" ] && break; sleep 0.1; done
  if [ "$whom" = launcher ]; then
    pkill "-$signal" -f "^mpirun.$by .*--wait_limit=3"
  else
    # The youngest of the three processes.
    pkill "-$signal" -n -f "$ranks_of_run"
  fi
  begin=$(date +%s)
  wait $runs
  while took=$(($(date +%s) - begin)) && [ $took -le 13 ] && pgrep -f "$ranks_of_run" > /dev/null; do sleep 0.2; done
  [ $took -le 13 ]
  status=$?
  judge "$1 with $by: all processes end, after $took s" $status
  [ $status = 0 ] || { cat "$name/log"; pkill -9 -f "$ranks_of_run"; }
  # shellcheck disable=SC2086
  train "$name" "$by" 2 $gpt --steps=120 --resume=yes
  for step in "$name"/run/step_*; do  # a request to end is one more checkpoint
    [ -e "whole/run/${step##*/}" ] || rm -r "$step"
  done
  compare "$1 with $by, resumed on 2 ranks" "$name" whole
}
# shellcheck disable=SC2086
train whole none 1 $gpt --steps=120
for mpi in $mpis; do
  ends "a rank is killed" "$mpi" KILL rank
  ends "a rank hangs" "$mpi" STOP rank
  # Open MPI hands on a batch system's warning, MPICH a request to end.
  ends "a request to end" "$mpi" "$([ "$mpi" = openmpi ] && echo USR1 || echo TERM)" launcher
done

# shellcheck disable=SC2086
train verified none 1 $gpt --data="$work/text.txt" --steps=2
for mpi in $mpis; do
  # shellcheck disable=SC2086
  {
    says "too few micro-batches" "$mpi" 2 2 "gradient_accumulation_steps is 1; use --gradient_accumulation_steps=2" \
      "$orrery" train --data=text.txt --out=refused
    says "too few parts" "$mpi" 3 2 "gradient_parts is 2; use --gradient_parts=3" "$orrery" train $gpt --data=text.txt \
      --gradient_parts=2 --out=refused
    says "a plan" "$mpi" 2 2 "plans one process, not 2 ranks" "$orrery" train $gpt --data=text.txt --plan=yes
    # shellcheck disable=SC2016
    says "other arguments on one rank" "$mpi" 2 2 "has other arguments, .*seed=1.* than rank 0" sh -c '
      exec "$@" "--seed=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"' sh "$orrery" train $gpt --data=text.txt --out=refused
    says "an unknown setting" "$mpi" 2 2 "unknown setting 'no_such_setting'" "$orrery" train --no_such_setting=1
    says "a folder that holds a run" "$mpi" 2 1 "already holds a run" "$orrery" train $gpt --data=text.txt \
      --out=text.1/run
    says "another command" "$mpi" 2 2 "orrery generate runs in one process, not as one of 2" "$orrery" generate \
      text.1/run
    says "a command that does not join" "$mpi" 1 1 "rank 1: orrery list runs in one process, not as one of 2" \
      $(launcher "$mpi" 2 | sed 's/2/1/') "$orrery" train $gpt --data=text.txt --out=refused : -n 1 "$orrery" list
    says "a run that is interrupted and resumed on 3 ranks" "$mpi" 1 0 "all bytes are identical" "$orrery" \
      verify_resume verified/run --steps=2 --launcher="$(launcher "$mpi" 3)"
    says "too few parts for the launcher" "$mpi" 1 1 "gradient_parts is 8; use" "$orrery" verify_resume verified/run \
      --steps=2 --launcher="$(launcher "$mpi" 9)"
    says "a forecast" "$mpi" 2 3 "forecast .* 1 rank: about .*; 2 ranks: .* exchange; .*; 8 ranks: " "$orrery" \
      train $gpt --data=text.txt --steps=2 --out="forecast.$mpi"
    # shellcheck disable=SC2016
    says "other data on one rank" "$mpi" 2 1 "differs from rank 0 .* in training data" sh -c '
      rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
      mkdir -p "host$rank" && cd "host$rank" && { cat ../text.txt; echo "$rank"; } > text.txt && exec "$@"' sh \
      "$orrery" train $gpt --data=text.txt --out=refused
  }
done
[ ! -e refused/metrics.jsonl ] && [ ! -e host0/refused/metrics.jsonl ]
judge "nothing is written by refused runs" $?

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
