#!/usr/bin/env bash
# run.sh BINARIES WORK SECONDS: every fuzz target for that long, one after the other, at the lowest priority.
# Starts from the kept inputs and from what fuzz_seeds writes; new inputs stay in WORK/corpus, findings in WORK/findings.
# `make fuzz-keep TARGET=... INPUTS="..."` keeps some of them.
# Ends with a line per target: seconds, executions, findings. Status 1 when there is a finding.
set -uo pipefail
binaries=$1 work=$2 seconds=$3
folder=$(cd "$(dirname "$0")" && pwd)
kept=$binaries/inputs
mkdir -p "$work/corpus" "$work/findings" "$work/logs"
"$binaries/fuzz_seeds" "$work/seeds"
failed=0
report=$work/report.txt
: > "$report"
for binary in "$binaries"/fuzz_*; do
  name=${binary##*/fuzz_}
  [[ -x $binary && -f $binary && $name != seeds && $name != *.* ]] || continue
  if [[ -n ${FUZZ_ONLY:-} && " $FUZZ_ONLY " != *" $name "* ]]; then continue; fi
  mkdir -p "$work/corpus/$name" "$work/findings/$name" "$kept/$name" "$work/seeds/$name"
  longest=4096
  [[ $name == ptx || $name == kernel_text || $name == worker_session || $name == images ]] && longest=16384
  words=()
  words_of=${name/kernel_text/ptx}
  [[ -f $folder/dictionaries/$words_of.dict ]] && words=("-dict=$folder/dictionaries/$words_of.dict")
  ASAN_OPTIONS=detect_leaks=${FUZZ_LEAKS:-1}:allocator_may_return_null=1 \
    nice -n 19 "$binary" -max_total_time="$seconds" -max_len=$longest -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
    -artifact_prefix="$work/findings/$name/" "${words[@]}" "$work/corpus/$name" "$kept/$name" "$work/seeds/$name" \
    > "$work/logs/$name.out" 2> "$work/logs/$name.log"
  status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/logs/$name.log")
  found=$(find "$work/findings/$name" -type f | wc -l)
  (( status != 0 || found != 0 )) && failed=1
  printf '%-18s %6s s %12s executions %3s findings\n' "$name" "$seconds" "${executions:-?}" "$found" | tee -a "$report"
done
exit $failed
