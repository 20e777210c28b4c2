#!/usr/bin/env bash
# The example's losses are the same to the last digit on every stage, and they fall.
set -euo pipefail
program=$1
text=$2
"$program" "$text" 0 2 20 >stage0.txt
cat stage0.txt
for stage in 1 2 3; do
  "$program" "$text" "$stage" 2 20 >"stage$stage.txt"
  cmp stage0.txt "stage$stage.txt"
done
awk '{ last = $4 } NR == 1 { first = $4 } END { exit !(last < 0.9 * first) }' stage0.txt
