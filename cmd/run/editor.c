/* SPDX-License-Identifier: Apache-2.0 */
/* editor.c - a text in the user's editor (edit.h).                           room: cmd */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include "base/io.h"
#include "cli/cli.h"
#include "run/edit.h"

enum { TEXT_BYTES_MAX = 64 << 20, PATH_BYTES = 4096 };

static const char *editor_of(void)
{
    static const char *const names[] = { "VISUAL", "EDITOR" };

    for (size_t i = 0; i < 2; i++) {
        const char *value = getenv(names[i]);

        if (value != NULL && value[strspn(value, " \t")] != '\0')
            return value;
    }
    return "vi";
}

/* Runs the editor on the terminal until it ends. One that is killed leaves the terminal in its own mode. Its name may
 * have arguments, so the shell reads it. */
static enum err_code run_editor(const char *editor, const char *path, struct err *e)
{
    char command[PATH_BYTES];
    int status = 0;
    struct termios mode;
    pid_t pid;

    if (snprintf(command, sizeof command, "%s \"$0\"", editor) >= (int)sizeof command)
        return err_set(e, ERR_IO, "the editor's name is too long");
    fflush(NULL);
    const bool has_mode = tcgetattr(STDIN_FILENO, &mode) == 0;
    pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, path, (char *)NULL);
        _exit(127);
    }
    if (pid < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot be started", editor);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        if (cli_signal() != 0 && cli_signal() != SIGINT) /* ^C is the editor's, an end is for both */
            kill(pid, SIGTERM);
    if (has_mode)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
    if (cli_signal() == SIGINT)
        cli_forget_signal();
    if (WIFSIGNALED(status))
        return err_set(e, ERR_IO, "%s: was ended by signal %d", editor, WTERMSIG(status));
    if (WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 126)
        return err_set(e, ERR_IO, "%s: cannot be run; VISUAL or EDITOR names another editor", editor);
    if (WEXITSTATUS(status) != 0)
        return err_set(e, ERR_IO, "%s: ended with status %d", editor, WEXITSTATUS(status));
    return ERR_OK;
}

static enum err_code make_file(char path[PATH_BYTES], const struct cli_buf *text, struct err *e)
{
    static const char end[] = ".txt";
    const char *dir = getenv("TMPDIR");
    enum err_code code;
    int fd;

    if (snprintf(path, PATH_BYTES, "%s/chimere-message-XXXXXX%s", dir != NULL && *dir != '\0' ? dir : "/tmp", end) >=
        PATH_BYTES)
        return err_set(e, ERR_IO, "TMPDIR is too long");
    fd = mkstemps(path, sizeof end - 1);
    if (fd < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot create", path);
    code = text->n > 0 && io_write_all(fd, text->p, text->n, e) ? err_wrap(e, "%s", path) : ERR_OK;
    close(fd);
    if (code != ERR_OK)
        unlink(path);
    return code;
}

enum err_code cli_edit_text(struct cli_buf *text, struct err *e)
{
    char path[PATH_BYTES], *data = NULL;
    size_t n = 0;
    struct err own = { 0 };
    enum err_code code;

    if (make_file(path, text, e))
        return e->code;
    code = run_editor(editor_of(), path, e);
    if (io_read_regular(&data, &n, path, TEXT_BYTES_MAX, &own) != ERR_OK) {
        code = code != ERR_OK ? code : err_copy(e, &own);
    } else if (code == ERR_OK && memchr(data, '\0', n) != NULL) {
        code = err_set(e, ERR_FORMAT, "%s: not a text", path);
    } else if (code == ERR_OK) {
        io_unmark(data, &n);
        cli_buf_free(text);
        *text = (struct cli_buf){ data, n, n + 1 };
        data = NULL;
    } else if (n == text->n && (n == 0 || memcmp(data, text->p, n) == 0)) {
        unlink(path); /* nothing was written */
    } else {
        own = *e;
        err_set(e, code, "%s; what was written stays in %s", own.msg, path);
    }
    if (code == ERR_OK)
        unlink(path);
    free(data);
    return code;
}
