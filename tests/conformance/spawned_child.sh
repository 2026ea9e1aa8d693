#!/bin/sh
# What multiprocessing starts in place of Python: a process that computes gets a share of its own, its helpers do not.
case "$*" in
*--multiprocessing-fork*)
  exec "$CONFORMANCE_PYTHON" -m gpupool.cli.main run -p 0.3 --wait 60 -- "$CONFORMANCE_PYTHON" "$@"
  ;;
*)
  exec "$CONFORMANCE_PYTHON" "$@"
  ;;
esac
