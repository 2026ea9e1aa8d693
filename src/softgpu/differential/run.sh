#!/usr/bin/env bash
# run.sh BINARY PROGRAMS FIRST JOBS: that many random programs in JOBS processes. Status 1 when one differs.
set -uo pipefail
binary=$1 programs=$2 first=$3 jobs=$4
begin=$(date +%s.%N)
pids=()
for ((job = 0; job < jobs; ++job)); do
  from=$((first + programs * job / jobs)) to=$((first + programs * (job + 1) / jobs))
  # shellcheck disable=SC2086
  "$binary" ${FUZZ_OPTIONS:-} --programs $((to - from)) --first "$from" &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
awk -v programs="$programs" -v begin="$begin" -v end="$(date +%s.%N)" -v jobs="$jobs" \
  'BEGIN { printf "%d programs in %.0f s with %d processes: %.0f a second\n", programs, end - begin, jobs, programs / (end - begin) }'
exit $failed
