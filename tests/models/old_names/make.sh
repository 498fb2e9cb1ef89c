#!/bin/sh
# sh make.sh PROGRAM: files that a build of 2facf9c writes, with the names of that version: settings, logs,
# checkpoints, metrics, a sweep with its pool, a claim with its verdict. Written once; old_names_test.cpp reads it.
#   NAME/           a run of 4 steps
#   NAME_on.jsonl   the run's log after steps 5 and 6, by the same program
#   seen.csv        the values of all analyses of the run `gpt`; hooks.txt: the values of its hooks
set -eu
program=$1
cd "$(dirname "$0")"
rm -rf gpt dyt stream translation vit copy sweep pool study claim.toml ./*_on.jsonl seen.csv hooks.txt runs.csv
cp ../old_checkpoint/text.txt text.txt
head -n 40 ../translation/bible.tsv > pairs.tsv
shapes=../images/shapes

every="--warmup_steps=1 --evaluate_every=2 --figures_every=2 --keep_checkpoints=1 --keep_best=no --threads=2 --seed=7"
width="--heads=2 --width=16 --batch=2"

# run NAME SETTINGS...: trains 4 steps, and resumes a copy to step 6.
run() {
  name=$1
  shift
  "$program" train --out="$name" --steps=4 $every "$@" > log.txt 2>&1 || [ $? = 3 ] || { cat log.txt; exit 1; }
  cp -r "$name" going_on
  "$program" train --config=going_on/settings.toml --out=going_on --steps=6 --resume=yes > log.txt 2>&1 || [ $? = 3 ] ||
    { cat log.txt; exit 1; }
  mv going_on/metrics.jsonl "$name"_on.jsonl
  rm -rf going_on
}

run gpt --model=gpt $width --layers=2 --context=16 --data=text.txt --key_heads=1 --initial_std=by_width \
  --attention="softmax(qk_norm=rms, own=no, span=adaptive_span(8, R=4), persistent=4)" --feed_forward=memory \
  --rate_factors="*.span*=2" --decays="*.bias=no" --optimizer="adamw(learning_rates=by_group(spans=0.5))" \
  --figures=all --probe=yes --losses.span_penalty=0.01
run dyt --model=sm-g $width --layers=2 --context=16 --data=text.txt --normalization="dyt(alpha=0.7)" \
  --attention="pointwise(relu, alpha=1)" --feed_forward="dense(prelu)" --optimizer=lion --figures=all \
  --tokenizer=byte --initial_std="equal(0.05)"
run stream --model=stream $width --layers=1 --context=16 --memory=16 --attention="softmax(span=adaptive_span(16))" \
  --data=text.txt --optimizer=adagrad --figures=usual
run translation --model=encoder_decoder --layers=1 --width=16 --heads=2 --context=64 --data=pairs.tsv --longest=60 \
  --tokenizer=character --batch_tokens=300 --figures=all --validation_fraction=0.2
run vit --model=vit $width --layers=1 --patch=4 --data=$shapes --initial_std=by_inputs --figures=all \
  --normalization=layer
run copy --model=gpt --task=algorithmic --problem="copy(length=4)" $width --layers=1 --context=16 --figures=all

"$program" inspect gpt --text="The " --look=attention,heads,curves,depth,memories,causes --out=seen.csv > log.txt
"$program" inspect gpt --text="The " --look=heads --hooks='*' > hooks.txt
"$program" metrics gpt --out=figures.csv > log.txt
"$program" sweep --data=text.txt --model=gpt $width --layers=1 --context=16 --steps=2 --warmup_steps=1 \
  --evaluate_every=0 --attention="{softmax,pointwise(relu)}" --seed="{1,2}" --against=attention=softmax --out=sweep \
  --runs=pool --jobs=1 --save_optimizer=no > log.txt 2>&1
refuted='"relu > softmax + 0.1", "mean(attention_zeros/*): softmax > relu"'
refuted="$refuted, \"highest(mean(largest_score/*)): relu > 100\""
cat > claim.toml << CLAIM
source = "tests/models/old_names/make.sh"
sentence = "Two steps with a head of zeros cost at most a tenth of a nat."
figure = "none: it is there to be read"
smaller = "one layer of width 16"
kind = "trained"
seeds = [1, 2, 3]
metric = "validation_loss"
refuted_if = [$refuted]

[base]
model = "gpt"
data = "text.txt"
heads = 2
width = 16
batch = 2
layers = 1
context = 16
steps = 2
warmup_steps = 1
save_optimizer = false
figures = "all"
figures_every = 1
initial_std = "by_width"

[variants.softmax]
attention = "softmax"

[variants.relu]
attention = "pointwise(relu)"
CLAIM
"$program" study claim.toml --out=study --runs=pool --jobs=1 > log.txt 2>&1 || { cat log.txt; exit 1; }
rm log.txt
