#!/bin/sh
# Ten steps with a checkpoint after each, for the form `lines`, in POSIX shell. The state of a checkpoint is a text of
# this program's own, so that `sed` finds it in the line that the program reads.
#
# Usage: steps_lines.sh [STEPS [SECONDS_BETWEEN_STEPS]]
set -eu
steps=${1:-10}
pause=${2:-0}

read -r task
state=$(printf '%s\n' "$task" | sed -n 's/.*"state": *"at \([0-9]* [0-9]*\)".*/\1/p')
step=${state% *} total=${state#* }
: "${step:=0}" "${total:=0}"
started_at=$((step + 1)) resumed_from=null
[ "$step" -eq 0 ] || resumed_from="\"step-$step\""
printf '{"log": "attempt %d starts at step %d"}\n' "$TENURE_ATTEMPT" "$started_at"

while [ "$step" -lt "$steps" ]; do
    sleep "$pause"
    step=$((step + 1))
    total=$((total + step * step))
    percent=$((step * 100 / steps))
    printf '{"fraction": %d.%02d, "message": "step %d", "checkpoint": "step-%d", "state": "at %d %d"}\n' \
        $((percent / 100)) $((percent % 100)) "$step" "$step" "$step" "$total"
done

printf '{"result": {"total": %d, "started_at": %d, "resumed_from": %s}}\n' "$total" "$started_at" "$resumed_from"
