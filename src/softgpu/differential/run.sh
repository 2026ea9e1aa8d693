#!/usr/bin/env bash
# run.sh BINARY PROGRAMS FIRST JOBS: that many random programs in JOBS processes. Status 1 when one differs.
# In stretches, each by a process of its own: machine code is kept as long as a process lives.
set -uo pipefail
binary=$1 programs=$2 first=$3 jobs=$4
stretch=1000
begin=$(date +%s.%N)
run_part() {
  local from=$1 to=$2 failed=0 end
  for ((; from < to; from = end)); do
    end=$((from + stretch < to ? from + stretch : to))
    # shellcheck disable=SC2086
    "$binary" ${FUZZ_OPTIONS:-} --programs $((end - from)) --first "$from" || failed=1
  done
  return $failed
}
pids=()
for ((job = 0; job < jobs; ++job)); do
  run_part $((first + programs * job / jobs)) $((first + programs * (job + 1) / jobs)) &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
awk -v programs="$programs" -v begin="$begin" -v end="$(date +%s.%N)" -v jobs="$jobs" \
  'BEGIN { printf "asked for %d programs: %.0f s with %d processes\n", programs, end - begin, jobs }'
exit $failed
