#!/bin/sh
# Stands in for NVIDIA's assembler when the device is a software GPU: hands the PTX text
# on to the driver, which runs it. Understands what Triton passes: FILE.ptx -o OUTPUT.
set -eu

source=
output=
while [ $# -gt 0 ]; do
    case $1 in
        --version | -V)
            # The release decides which PTX version Triton writes: 13.0 is PTX ISA 9.0.
            echo "gpupool assembler: passes PTX on to the driver"
            echo "Cuda compilation tools, release 13.0, V13.0.0"
            exit 0
            ;;
        -o | --output-file)
            [ $# -ge 2 ] || { echo "ptxas pass-through: $1 needs a file" >&2; exit 1; }
            output=$2
            shift
            ;;
        --output-file=*) output=${1#*=} ;;
        -*) ;;
        *) source=$1 ;;
    esac
    shift
done

if [ -z "$source" ] || [ -z "$output" ]; then
    echo "ptxas pass-through: expected FILE.ptx -o OUTPUT" >&2
    exit 1
fi
exec cp -- "$source" "$output"
