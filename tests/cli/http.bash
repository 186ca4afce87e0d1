# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# http.bash - a server over HTTP and what is asked of it.

curl_with=() # options of all that follows
serve() # OPTION...: starts the server; its address is in $url, its process in $server
{
    chimere-serve-stdio "$@" > served 2> served.err 3>&- &
    server=$!
    wait_for test -s served || { cat served.err; return 1; }
    url=$(jq -r .url served)
}
# A build without the library says so, and nothing here can be tried.
need_http()
{
    command -v curl > /dev/null || skip "curl is not installed"
    no chimere-serve-stdio --listen unix:no/such/place 2> why
    no grep -q 'without HTTP' why || skip "built without libmicrohttpd"
}
start()
{
    need_http
    serve --listen 127.0.0.1:0 "$@"
}
teardown()
{
    [ -n "${server:-}" ] || return 0
    kill -KILL "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
}
post() # PATH BODY [OPTION OF curl ...]
{
    curl -sS "${curl_with[@]}" "$url/v1/$1" -H 'Content-Type: application/json' -d "$2" "${@:3}"
}
status_of() # OPTION OF curl ...
{
    curl -sS "${curl_with[@]}" -o body -w '%{http_code}' "$@"
}
metric()
{
    curl -sS "${curl_with[@]}" "$url/metrics" | awk -v name="chimere_$1" '$1 == name { print $2 }'
}
stopped() # STATUS: what the server ends with
{
    local got=0
    wait "$server" || got=$?
    server=
    [ "$got" -eq "$1" ]
}
