#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# recompute.sh - a verifier of demo.sh: a solution whose steps have "a op b = c" scores 1 if all of these are right, and 0 if one is
# wrong; any other one 0.5. A line with a solution in, a line with its score out.
while IFS= read -r line; do
    score=0.5
    while [[ $line =~ ([0-9]{1,9})\ ([-+*])\ ([0-9]{1,9})\ =\ (-?[0-9]{1,18}) ]]; do
        line=${line#*"${BASH_REMATCH[0]}"}
        a=$((10#${BASH_REMATCH[1]})) b=$((10#${BASH_REMATCH[3]})) is=${BASH_REMATCH[4]}
        case ${BASH_REMATCH[2]} in
        +) right=$((a + b)) ;;
        -) right=$((a - b)) ;;
        *) right=$((a * b)) ;;
        esac
        if [ "$right" != "$is" ]; then score=0; elif [ "$score" != 0 ]; then score=1; fi
    done
    echo "$score"
done
