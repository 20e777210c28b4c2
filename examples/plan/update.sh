#!/bin/sh
# Writes the plan of each example beside it, by the command that the example names.
#   sh examples/plan/update.sh PROGRAM            rewrites NAME.txt
#   sh examples/plan/update.sh PROGRAM --check    exits 1 where one is not what the command prints
# From the root of the checkout; PROGRAM: a built sluice. The plan of configs/gpt2-345m.yaml is here too.
set -u
program=$1
check=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root" || exit 1
status=0
for config in examples/plan/*.yaml configs/gpt2-345m.yaml; do
  text=examples/plan/$(basename "${config%.yaml}").txt
  arguments=$(sed -n 's|^# *\./sluice \(plan .*\)$|\1|p' "$config")
  new=$work/$(basename "$text")
  echo "\$ sluice $arguments" > "$new"
  # The command is words without quotes. shellcheck disable=SC2086
  "$program" $arguments >> "$new" 2> "$work/errors"
  code=$?
  if [ "$code" -ne 0 ] && [ "$code" -ne 3 ]; then
    echo "$config: exit code $code" >&2
    cat "$work/errors" >&2
    status=1
  elif [ -z "$check" ]; then
    cp "$new" "$text"
  elif ! diff -u "$text" "$new"; then
    echo "$text is not what its command prints: run examples/plan/update.sh" >&2
    status=1
  fi
done
exit $status
