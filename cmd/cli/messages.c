/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c - messages of a chat from a file.                               room: cmd */
#include <string.h>

#include "cli/cli.h"
#include "serve/serve.h"

/* Other members of a request would change the answer, or it is not known whether: options say that here. */
static void warn_of_members(const json_t *request, bool tools, const char *path)
{
    static const char *const known[] = { "messages", "tools", "model", "stream", "stream_options", "user" };
    const char *key;
    char names[400] = "";
    json_t *v;

    json_object_foreach ((json_t *)(uintptr_t)request, key, v) {
        const size_t used = strlen(names);
        bool told = !json_is_null(v);

        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            told = told && (strcmp(key, known[i]) != 0 || (!tools && strcmp(key, "tools") == 0));
        if (told)
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", key);
    }
    if (names[0] != '\0')
        cli_warn(tools ? "%s: only its messages and tools are used, not %s: use options for that"
                       : "%s: only its messages are used, not %s",
                 path, names);
}

enum err_code cli_read_messages(json_t *all, json_t **tools, const char *path, struct err *e)
{
    json_t *file, *list;
    enum err_code code;

    if (cli_json_file_by(&file, path, serve_parse, e))
        return e->code;
    list = json_is_object(file) ? json_object_get(file, "messages") : file;
    if (!json_is_array(list))
        code = err_set(e, ERR_FORMAT, "%s: neither an array of messages nor an object with one", path);
    else
        code = json_array_extend(all, list) ? err_nomem(e) : ERR_OK;
    if (code == ERR_OK)
        warn_of_members(file, tools != NULL, path);
    if (tools != NULL)
        *tools = json_is_object(file) ? json_incref(json_object_get(file, "tools")) : NULL;
    json_decref(file);
    return code;
}
