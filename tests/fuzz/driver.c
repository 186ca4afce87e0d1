/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c - runs a fuzz target over saved inputs: every file named, and every file of every
 * directory named. Each input is a copy of its own, so that a sanitizer sees its ends.
 * Exit status 1 when a path cannot be read, or when there was nothing to run. */
#include "base/io.h"
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INPUT_BYTES_MAX (64U << 20)

static bool run_file(const char *path, size_t *n_run)
{
    struct err e;
    char *data;
    uint8_t *copy;
    size_t n;

    if (io_read_all(&data, &n, path, INPUT_BYTES_MAX, NULL, &e)) {
        fprintf(stderr, "fuzz: %s\n", e.msg);
        return false;
    }
    copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) {
        fprintf(stderr, "fuzz: %s: out of memory\n", path);
        free(data);
        return false;
    }
    memcpy(copy, data, n);
    free(data);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    ++*n_run;
    return true;
}

static bool run_dir(const char *path, size_t *n_run)
{
    DIR *d = opendir(path);
    bool ok = d != NULL;
    const struct dirent *entry;

    if (!ok)
        perror(path);
    while (d != NULL && (entry = readdir(d)) != NULL) {
        size_t room = strlen(path) + strlen(entry->d_name) + 2;
        char *file;

        if (entry->d_name[0] == '.')
            continue;
        file = malloc(room);
        if (file == NULL) {
            fprintf(stderr, "fuzz: %s: out of memory\n", path);
            ok = false;
            break;
        }
        snprintf(file, room, "%s/%s", path, entry->d_name);
        ok = run_file(file, n_run) && ok;
        free(file);
    }
    if (d != NULL)
        closedir(d);
    return ok;
}

int main(int argc, char **argv)
{
    size_t n_run = 0;
    bool ok = true;

    for (int i = 1; i < argc; i++) {
        struct stat st;

        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            ok = run_dir(argv[i], &n_run) && ok;
        else
            ok = run_file(argv[i], &n_run) && ok;
    }
    printf("%zu inputs\n", n_run);
    return ok && n_run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
