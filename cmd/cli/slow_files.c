/* SPDX-License-Identifier: Apache-2.0 */
/* slow_files.c - says how slowly a model is read that lies on a file system of another machine or system.  room: cmd */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

#define SLOW_BPS 500e6 /* what a local disk gives, and more */
enum { SAMPLE_BYTES = 64 << 20, READ_BYTES = 1 << 20 };

/* The kind of file system, by the numbers of statfs(2); NULL: an ordinary one. */
static const char *far_kind(const char *path)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } known[] = {
        { 0x01021997, "9p (a drive of Windows in WSL, or of a host)" },
        { 0x53464846, "drvfs (a drive of Windows in WSL)" },
        { 0x6969, "NFS" },
        { 0x517b, "SMB" },
        { 0xff534d42, "SMB" },
        { 0xfe534d42, "SMB" },
        { 0x65735546, "FUSE" },
    };
    struct statfs st;

    if (statfs(path, &st) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((unsigned long)st.f_type == known[i].magic || (unsigned)st.f_type == known[i].magic)
            return known[i].name;
    return NULL;
}

/* Bytes in a second over the beginning of the file; 0: not known. */
static double read_speed(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *buf = malloc(READ_BYTES);
    const double from_ms = clock_ms();
    off_t at = 0;
    ssize_t n = 1;

    while (fd >= 0 && buf != NULL && at < SAMPLE_BYTES && (n = pread(fd, buf, READ_BYTES, at)) > 0)
        at += n;
    free(buf);
    if (fd >= 0)
        close(fd);
    const double s = (clock_ms() - from_ms) / 1e3;

    return at > 0 && n >= 0 && s > 0 ? (double)at / s : 0;
}

void cli_tell_slow(const char *path)
{
    const char *kind = cli_verbosity() >= 0 ? far_kind(path) : NULL;
    const double bps = kind != NULL ? read_speed(path) : 0;

    if (bps > 0 && bps < SLOW_BPS)
        cli_warn("%s: lies on %s and is read with %.0f MB/s: a copy on a local disk opens faster", path, kind,
                 bps / 1e6);
}
