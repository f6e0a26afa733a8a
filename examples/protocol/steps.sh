#!/bin/sh
# Ten steps with a checkpoint after each, for the form `folder`, in POSIX shell without a JSON reader: what it needs to
# know are its arguments and the names of files. It adds up squares.
#
# Usage: steps.sh [STEPS [SECONDS_BETWEEN_STEPS]]
set -eu
steps=${1:-10}
pause=${2:-0}

# checkpoint/ holds the newest checkpoint and nothing else when a program starts.
step=0 total=0 resumed_from=null
for found in checkpoint/step-*; do
    if [ -f "$found" ]; then
        cp "$found" table.part
        resumed_from="\"${found#checkpoint/}\""
        last=$(tail -n 1 table.part)
        step=${last%,*} total=${last#*,}
    fi
done
[ "$step" -gt 0 ] || : > table.part
started_at=$((step + 1))
echo "attempt $TENURE_ATTEMPT starts at step $started_at"

while [ "$step" -lt "$steps" ]; do
    sleep "$pause"
    step=$((step + 1))
    total=$((total + step * step))
    echo "$step,$total" >> table.part
    # A rename is all or nothing; nobody ever sees half a checkpoint.
    cp table.part checkpoint/next.part
    mv checkpoint/next.part "checkpoint/step-$step"
    percent=$((step * 100 / steps))
    printf '{"fraction": %d.%02d, "message": "step %d", "metrics": {"total": %d}, "checkpoint": "step-%d"}\n' \
        $((percent / 100)) $((percent % 100)) "$step" "$total" "$step" >> progress.jsonl
done

{ echo step,total; cat table.part; } > outputs/table.part
mv outputs/table.part outputs/table.csv
printf '{"total": %d, "started_at": %d, "resumed_from": %s}\n' "$total" "$started_at" "$resumed_from" > result.part
mv result.part result.json
