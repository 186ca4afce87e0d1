#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compile_commands.sh - the commands that `make -n` prints, on stdin, to the JSON that clangd and clang-tidy read.
set -eu
jq -Rn --arg dir "$PWD" '[inputs | capture("^(?<command>[^@].* -c -o (?<output>[^ ]+) (?<file>[^ ]+[.]cu?))$") | . + {directory: $dir}]'
