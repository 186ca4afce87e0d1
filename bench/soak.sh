#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# soak.sh [REQUESTS [SEQUENCES]]: many mixed requests through one server, some of them cancelled; see tests/clients/soak.py.
set -eu
cd "$(dirname "$0")/.."
export CHIMERE_MODEL=${CHIMERE_MODEL:-$PWD/share/models/chimere-nano-q5_k_m.gguf}
PATH=$PWD/bin:$PATH python3 tests/clients/soak.py "${1:-20000}" "${2:-16}"
