/* SPDX-License-Identifier: Apache-2.0 */
/* signal.c - interrupts, requests for status, files cut while mapped.      room: cmd */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"

static atomic_int interrupted;             /* the signal's number; threads that compute ask for it, too */
static volatile sig_atomic_t asked_to_end; /* by SIGINT, SIGTERM or SIGHUP, */
static volatile sig_atomic_t next_kills;   /* after which any of them kills */
static volatile sig_atomic_t status_asked;
static volatile sig_atomic_t hung_up;
static volatile sig_atomic_t resized;

enum { BUS_LINE = 4400 /* a path, and a few words around it */ };

/* Made beforehand, as a handler may not do much: the program's name and the model's file. If the handler finds out
 * which file was cut, that one's name takes the place of the model's. */
static char bus_message[BUS_LINE];
static size_t bus_name_bytes, bus_message_bytes;
static atomic_flag bus_told = ATOMIC_FLAG_INIT;
static const char bus_what[] = ": file changed or was cut while it was in use\n";

static void on_interrupt(int sig)
{
    if (asked_to_end && next_kills) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    asked_to_end = 1;
    interrupted = sig;
}

static void on_broken_pipe(int sig)
{
    interrupted = sig;
}

static void on_status(int sig)
{
    (void)sig;
    status_asked = 1;
}

static void on_hangup(int sig)
{
    (void)sig;
    hung_up = 1;
}

static void on_resize(int sig)
{
    (void)sig;
    resized = 1;
}

/* Does a line of /proc/self/maps, "FROM-TO ...", have the address? */
static bool covers(const char *line, uintptr_t address)
{
    uintptr_t edge[2] = { 0, 0 };

    for (int i = 0; i < 2; i++, line++)
        for (; (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f'); line++)
            edge[i] = 16 * edge[i] + (uintptr_t)(*line <= '9' ? *line - '0' : *line - 'a' + 10);
    return address >= edge[0] && address < edge[1];
}

/* The line of the map that has the address: drafters, adapters and tables are mapped like the model. A handler may call
 * all that is called here. */
static bool find_map(char line[BUS_LINE], uintptr_t address)
{
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char part[512];
    bool found = false;
    size_t at = 0;

    for (ssize_t n; fd >= 0 && !found && (n = read(fd, part, sizeof part)) > 0;)
        for (ssize_t i = 0; i < n && !found; i++)
            if (part[i] != '\n') {
                if (at < BUS_LINE - 1)
                    line[at++] = part[i];
            } else {
                line[at] = '\0';
                at = 0;
                found = covers(line, address);
            }
    if (fd >= 0)
        close(fd);
    return found;
}

/* Puts the file that is mapped there into the message. */
static void name_file(uintptr_t address)
{
    char line[BUS_LINE];
    const char *path = find_map(line, address) ? strchr(line, '/') : NULL;
    size_t n = path != NULL ? strlen(path) : 0;

    if (n == 0 || bus_name_bytes + n + sizeof bus_what > sizeof bus_message)
        return;
    memcpy(bus_message + bus_name_bytes, path, n);
    n += bus_name_bytes;
    memcpy(bus_message + n, bus_what, sizeof bus_what);
    bus_message_bytes = n + sizeof bus_what - 1;
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
    ssize_t n;

    (void)context;
    if (info->si_code <= 0) { /* sent by kill(2): not about a file */
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    while (atomic_flag_test_and_set(&bus_told)) /* threads may meet the cut at once: one tells, and ends them all */
        pause();
    name_file((uintptr_t)info->si_addr);
    n = write(STDERR_FILENO, bus_message, bus_message_bytes);
    (void)n;
    _exit(EXIT_DATA);
}

void cli_signals(const char *file)
{
    struct sigaction bus = { 0 }, usr = { 0 };
    int n = snprintf(bus_message, sizeof bus_message, "%s: %s%s", cli_name(), file, bus_what);

    bus_name_bytes = strlen(cli_name()) + 2;
    bus_message_bytes = n < 0 ? 0 : (size_t)n;
    if (bus_message_bytes >= sizeof bus_message)
        bus_message_bytes = sizeof bus_message - 1;
    bus.sa_sigaction = on_bus;
    bus.sa_flags = SA_SIGINFO;
    sigemptyset(&bus.sa_mask);
    sigaction(SIGBUS, &bus, NULL);
    usr.sa_handler = on_status;
    usr.sa_flags = SA_RESTART;
    sigemptyset(&usr.sa_mask);
    sigaction(SIGUSR1, &usr, NULL);
}

/* What nohup(1) or a shell's background job ignores stays ignored, and a hangup that has a mark of its own keeps it. */
static void catch (int sig, void (*handler)(int), int flags)
{
    struct sigaction sa = { 0 }, old;

    sa.sa_handler = handler;
    sa.sa_flags = flags;
    sigemptyset(&sa.sa_mask);
    if (sigaction(sig, NULL, &old) == 0 && old.sa_handler != SIG_IGN && old.sa_handler != on_hangup)
        sigaction(sig, &sa, NULL);
}

static void catch_ends(int flags)
{
    static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };

    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++)
        catch (sigs[i], on_interrupt, flags);
}

void cli_catch_interrupts(void)
{
    next_kills = 1;
    catch_ends(SA_RESTART);
}

void cli_catch_hangups(void)
{
    catch (SIGHUP, on_hangup, SA_RESTART);
}

bool cli_hung_up(void)
{
    const bool was = hung_up != 0;

    hung_up = 0;
    return was;
}

void cli_catch_resizes(void)
{
    catch (SIGWINCH, on_resize, SA_RESTART);
}

bool cli_resized(void)
{
    const bool was = resized != 0;

    resized = 0;
    return was;
}

void cli_catch_broken_pipe(void)
{
    catch (SIGPIPE, on_broken_pipe, 0);
}

void cli_await_signals(void)
{
    next_kills = 0;
    catch_ends(0);
}

int cli_signal(void)
{
    return interrupted;
}

void cli_forget_signal(void)
{
    asked_to_end = 0;
    interrupted = 0;
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

static bool no_signal(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return interrupted == 0;
}

const struct progress cli_until_signal = { no_signal, NULL };

void cli_reraise(void)
{
    int sig = interrupted;

    if (sig == 0)
        return;
    signal(sig, SIG_DFL);
    raise(sig);
}

bool cli_status_asked(void)
{
    if (!status_asked)
        return false;
    status_asked = 0;
    return true;
}
