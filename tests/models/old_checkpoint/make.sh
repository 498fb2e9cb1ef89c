#!/bin/sh
# sh make.sh ORRERY: made the files of this folder, with an orrery that used the former names of settings.
# Writes run/ with the checkpoint of step 2, and end.safetensors, the weights two steps later.
set -eu
cd "$(dirname "$0")"
"$1" train --data=text.txt --out=run --steps=4 --checkpoint_every=2 --evaluate_every=2 --keep=3 --layers=1 --heads=2 \
  --width=8 --context=8 --inner=24 --batch=2 --accumulate=2 --held_out=0.3 --rate=0.02 --final_rate=0.002 --warm_up=1 \
  --warm_up_form=quadratic --schedule='warmup_stable_decay(decay=0.5, fall=exponential)' --clip=0.5 --dtype=f64 \
  --optimizer='adamw(decay=0.05, beta2=0.95, rates=by_group(thresholds=0.5))' --dropout=0.1 --label_smoothing=0.1 \
  --attention='softmax(own=no, temperature=learned, entropy_threshold=learned(0.3))' --position='rotary(share=0.5)' \
  --losses.entropy_regularizer=0.1
mv run/step_000004/weights.safetensors end.safetensors
rm -r run/step_000004
"$1" generate --checkpoint=run --prompt=We --tokens=40 --temperature=1 > generated.txt
