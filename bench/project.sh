#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# project.sh - what a measured GPU says of another one's decoding speed. A projection: nothing here was measured on
# that other GPU. README.md has the method and what it takes for granted.
# usage: bench/project.sh RECORDS...
# In the environment: GPU, GBPS, SMS, GB: the other one's name, 10^9 bytes per second, processors, memory in 10^9 bytes;
# FROM_SMS: processors of the one measured
set -eu
gpu=${GPU:-RTX 5060 Ti} gbps=${GBPS:-448} sms=${SMS:-36} gb=${GB:-16} from=${FROM_SMS:-132}
[ $# -gt 0 ] || { echo "usage: bench/project.sh RECORDS..." >&2; exit 2; }
jq -nr --arg gpu "$gpu" --argjson gbps "$gbps" --argjson sms "$sms" --argjson gb "$gb" --argjson from "$from" '
    def fixed(n): . * pow(10; n) | round / pow(10; n);
    [inputs] as $all
    | [$all[] | select(.type == "speed" and .decode_tps and .step_launches and .step_bytes)
        | {name: .model.name, case, tps: .decode_tps, s: (1 / .decode_tps), launches: .step_launches,
           bytes: .step_bytes, weights: .model.weight_bytes, kernels: .hardware.kernels,
           read: .bandwidth_bytes_per_s}] as $v
    | if ($v | length) < 3 then "fewer than three decode records with launches\n" | halt_error(3) else . end
    | if ($v | map(.kernels) | unique | length) > 1 then "records of several GPUs\n" | halt_error(3) else . end
    | ([$all[] | select(.type == "bandwidth") | .read_bytes_per_s] | max // ($v | map(.read) | max)) as $read
    # least squares of 1 = a launches/s + c bytes/s: relative errors count alike, however long a step takes
    | reduce $v[] as $r ({ll: 0, lb: 0, bb: 0, l: 0, b: 0};
        ($r.launches / $r.s) as $x | ($r.bytes / $r.s) as $y
        | .ll += $x * $x | .lb += $x * $y | .bb += $y * $y | .l += $x | .b += $y)
    | (.ll * .bb - .lb * .lb) as $det
    | if $det <= 1e-6 * .ll * .bb then "launches and bytes go together in these records: no telling them apart\n" | halt_error(3)
      else . end
    | ((.l * .bb - .b * .lb) / $det) as $a | ((.b * .ll - .l * .lb) / $det) as $c
    | if $a <= 0 or $c <= 0 then "the fit gives a cost below zero: these records do not follow the model\n" | halt_error(3)
      else . end
    | (1 / $c / $read) as $part
    | ($part * $gbps * 1e9) as $low
    | ([1 / $c * $sms / $from, $gbps * 1e9] | min) as $high
    | "measured on \($v[0].kernels), \($read / 1e9 | fixed(0)) GB/s read:",
      "a launch costs \($a * 1e6 | fixed(2)) us, bytes move at \(1 / $c / 1e9 | fixed(0)) GB/s, \(100 * $part | fixed(1)) % of what is read",
      "PROJECTION to \($gpu), \($gbps) GB/s, \($sms) processors, \($gb) GB: a launch costs the same;",
      "low: the same share of the bandwidth, \($low / 1e9 | fixed(0)) GB/s; high: the same speed per multiprocessor, \($high / 1e9 | fixed(0)) GB/s",
      "",
      (["model", "case", "launches", "MB", "measured tokens/s", "fit off by %", "low", "high", "note"],
       ($v[] | ($a * .launches + $c * .bytes) as $fit
        | [.name, .case, (.launches | round), (.bytes / 1e6 | fixed(1)), (.tps | fixed(1)),
           (100 * ($fit / .s - 1) | fixed(1)),
           (1 / ($a * .launches + .bytes / $low) | fixed(1)), (1 / ($a * .launches + .bytes / $high) | fixed(1)),
           (if .weights > $gb * 1e9 then "weights of \(.weights / 1e9 | fixed(1)) GB do not fit" else "" end)])
       | @tsv)
' "$@"
