/* SPDX-License-Identifier: Apache-2.0 */
/* context_find.c - what a document says on questions, without a model's part in the answer.
 *
 *   context_find MODEL NOTES ITEMS.jsonl    a line {"id", "text", "want"} for each item; "text" null: nothing is said
 *
 * bench/context.sh builds and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include "base/io.h"
#include "base/json.h"
#include "gguf/gguf.h"
#include "recall/recall.h"
#include "text/text.h"

int main(int argc, char **argv)
{
    char *notes, line[65536];
    size_t n;
    struct gguf *g;
    struct text *t;
    struct err e;
    FILE *f = argc == 4 ? fopen(argv[3], "r") : NULL;

    if (f == NULL)
        return fprintf(stderr, "usage: context_find MODEL NOTES ITEMS.jsonl\n"), 2;
    if (gguf_open(&g, argv[1], &e) || text_open(&t, g, &e) || io_read_all(&notes, &n, argv[2], SIZE_MAX / 2, NULL, &e))
        return fprintf(stderr, "%s\n", e.msg), 1;
    while (fgets(line, sizeof line, f) != NULL) {
        json_t *item = json_loads(line, 0, NULL);
        json_t *asked = json_object_get(json_array_get(json_object_get(item, "messages"), 0), "content");
        json_t *has = json_object_get(item, "answers"), *wanted = has != NULL ? has : json_null();
        struct recall_said said;

        if (recall_answer(&said, (struct str){ notes, n }, t, str_of(json_string_value(asked)), &e))
            return fprintf(stderr, "%s\n", e.msg), 1;
        json_t *out = json_pack("{s:O, s:O, s:o, s:O}", "id", json_object_get(item, "id"), "asked", asked, "text",
                                said.text.n > 0 ? json_bytes(said.text) : json_null(), "want", wanted);

        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(out);
        json_decref(item);
    }
    return 0;
}
