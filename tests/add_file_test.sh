#!/bin/sh
# sh tests/add_file_test.sh BUILD: copies the tree and adds only a new member of each family (tests/dropped:
# activation, learned activation, attention, mask, feed-forward, normalization, position, loss, optimizer, schedule,
# metric, analysis, task, model, images, text, pairs).  The tests of its layer must pass, and the program must list,
# check and use each.  The copy takes over the objects of BUILD, so that make compiles only the new files.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cp -a engine nn models cuda tests examples CMakeLists.txt README.md "$copy"
dropped=$(cd tests/dropped && find . -name '*.cpp' | wc -l)

setting() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
# or_show LOG COMMAND...: writes the command's output to the log; prints it if the command fails.
or_show() {
  log=$copy/$1
  shift
  "$@" > "$log" 2>&1 || { cat "$log"; exit 1; }
}

targets="orrery nn_tests models_tests"
configure() {
  or_show configure.log cmake -S "$copy" -B "$copy/build" -G "Unix Makefiles" \
    -DCMAKE_BUILD_TYPE="$(setting CMAKE_BUILD_TYPE)" -DCMAKE_CXX_COMPILER="$(setting CMAKE_CXX_COMPILER)" \
    -DORRERY_MPI=OFF
}
# All objects depend on their target's flags: those must not change with a new file.
flags() { (cd "$copy/build/CMakeFiles" && cat orrery_core.dir/flags.make models_objects.dir/flags.make); }
configure
flags > "$copy/flags"
cp -a tests/dropped/. "$copy"
configure
flags | diff "$copy/flags" - || { echo "a new file changes the flags, so that make would compile everything"; exit 1; }
for target in orrery_core models_objects orrery_models program_objects test_main $targets; do
  cd "$build/CMakeFiles/$target.dir"
  find . -name '*.o' -exec cp --parents {} "$copy/build/CMakeFiles/$target.dir" \;
  cd "$OLDPWD"
done
find "$copy/build" -name '*.o' -exec touch {} +
# shellcheck disable=SC2086
or_show build.log cmake --build "$copy/build" --parallel "$(nproc)" --target $targets
if [ "$(grep -c 'Building' "$copy/build.log")" != "$dropped" ]; then
  cat "$copy/build.log"
  echo "other files than the $dropped new ones were compiled"
  exit 1
fi
or_show nn_tests.log "$copy/build/nn_tests"
# All except slow tests without registries.
or_show models_tests.log "$copy/build/models_tests" "-tce=memory plan:*,logit_lens: it takes*,sentence piece:*,\
image:*,foreign files:*,translation:*,byte pairs:*"
grep -h 'test cases' "$copy/nn_tests.log" "$copy/models_tests.log"

orrery=$copy/build/orrery
or_show list.log "$orrery" list
for name in $(cd tests/dropped && find . -name '*.cpp' -exec basename {} .cpp \;); do
  grep -q "^  $name\b" "$copy/list.log" || { echo "$name is not listed"; exit 1; }
done
or_show gradcheck.log "$orrery" gradcheck dropped dropped_learned dropped_attention dropped_feed_forward \
  dropped_normalization dropped_position dropped_loss
tail -n 1 "$copy/gradcheck.log"

# trained NAME LOSS SETTINGS...: trains a run; its last validation loss must be below LOSS.
trained() {
  name=$1 most=$2
  shift 2
  rm -rf "$copy/run"
  or_show train.log "$orrery" train --steps=300 --out="$copy/run" "$@"
  awk -v name="$name" -v most="$most" '/^validation loss/ { loss = $3 }
    END { print name ": validation loss", loss; exit !(loss > 0 && loss < most) }' "$copy/train.log"
}
# A uniform guess has loss ln 65 = 4.17; the letters' frequencies alone give 3.35.  Without a normalization that
# divides, small embeddings stay small: they and alpha are scaled, as DyT's authors do.
text="--data=examples/data/tinyshakespeare.txt --model=gpt-char-small --layers=2 --width=64 --embedding_scale=learned"
for part in feed_forward='dense(dropped)' attention='pointwise(dropped)' normalization='dynamic(dropped, alpha=4)' \
  attention='pointwise(dropped_learned)'; do
  trained "$part" 3.2 $text "--$part"
done
trained "all the others" 3.6 $text --feed_forward='dense(dropped_learned)' --attention=dropped_attention \
  --mask='causal and (dropped_mask(4) or window(2))' --normalization=dropped_normalization \
  --position=dropped_position --schedule=dropped_schedule \
  --task=dropped_task --metrics=dropped_metric --optimizer=dropped_optimizer --learning_rate=0.05
grep -q dropped_metric "$copy/run/metrics.jsonl"
or_show inspect.log "$orrery" inspect "$copy/run" --analysis=dropped_analysis
grep -q 'mean |x|' "$copy/inspect.log"
awk '{ print } NR % 40 == 0 { print "." }' examples/data/tinyshakespeare.txt > "$copy/documents.dropped"
trained "dropped_text" 3.6 --data="$copy/documents.dropped" --model=gpt-char-small --layers=2 --width=64
head -n 2000 examples/data/tinyshakespeare.txt > "$copy/pairs.dropped"
trained "dropped_pairs" 4 --data="$copy/pairs.dropped" --model=encoder_decoder --layers=1 --heads=2 --width=32 \
  --tokenizer=byte --batch_tokens=400
trained "dropped_model" 2.9 --data=examples/data/tinyshakespeare.txt --model=dropped_model --learning_rate=0.03
