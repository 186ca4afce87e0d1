/* SPDX-License-Identifier: Apache-2.0 */
/* base_pool_test.c - the room base: worker threads, and how many there should be. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base_dir.h"
#include "base/cpus.h"
#include "base/memory.h"
#include "base/pool.h"

struct sums {
    double *out;
    atomic_uint *seen;
    int n_threads;
    atomic_bool bad;
};

static void sums_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    struct sums *s = ctx;
    if (worker < 0 || worker >= s->n_threads || begin >= end) {
        atomic_store(&s->bad, true);
    }
    for (int64_t i = begin; i < end; i++) {
        double sum = 0;
        for (int k = 1; k <= 5; k++) {
            sum += sin((double)i) / k;
        }
        s->out[i] = sum; /* plain: a race here is what the thread sanitizer looks for */
        atomic_fetch_add(&s->seen[i], 1);
    }
}

static void test_pool_results(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000 };
    static const int64_t grains[] = { 1, 2, 3, 8, 64, 999, 1000, 1001, INT64_MAX };
    enum { MAX = 1000 };
    static double out[MAX], want[MAX];
    static atomic_uint seen[MAX];
    struct err e;
    for (int n_threads = 1; n_threads <= 8; n_threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_open(&p, n_threads, &e), ERR_OK);
        assert_int_equal(pool_size(p), n_threads);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
                struct sums s = { out, seen, n_threads, false };
                for (int64_t k = 0; k < MAX; k++) {
                    out[k] = -99;
                    atomic_store(&seen[k], 0);
                }
                pool_for(p, sizes[i], grains[g], sums_run, &s);
                assert_false(atomic_load(&s.bad));
                for (int64_t k = 0; k < MAX; k++) {
                    assert_int_equal(atomic_load(&seen[k]), k < sizes[i]);
                }
                if (n_threads == 1 && sizes[i] == MAX && g == 0) {
                    memcpy(want, out, sizeof want);
                }
                assert_memory_equal(out, n_threads == 1 && sizes[i] < MAX ? out : want,
                                    (size_t)sizes[i] * sizeof out[0]);
            }
        }
        pool_close(p);
    }
}

struct pieces {
    int64_t n_items, grain;
    atomic_bool bad;
};

static void pieces_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    struct pieces *s = ctx;
    int64_t want = s->n_items - begin < s->grain ? s->n_items - begin : s->grain;
    if (begin % s->grain != 0 || end - begin != want) {
        atomic_store(&s->bad, true);
    }
}

static void test_pool_pieces(void **state)
{
    (void)state;
    struct err e;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_open(&p, n_threads, &e), ERR_OK);
        static const int64_t cases[][2] = {
            { 100, 7 }, { 100, 100 }, { 100, 101 }, { INT64_MAX, INT64_MAX / 4 }, { INT64_MAX, INT64_MAX },
        };
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct pieces s = { cases[i][0], cases[i][1], false };
            pool_for(p, s.n_items, s.grain, pieces_run, &s);
            assert_false(atomic_load(&s.bad));
        }
        pool_close(p);
    }
}

static void count_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    int64_t *count = ctx;
    for (int64_t i = begin; i < end; i++) {
        count[i]++;
    }
}

static void test_pool_tiny(void **state)
{
    (void)state;
    static const int threads[] = { 2, 3, 8 };
    struct err e;
    for (size_t t = 0; t < 3; t++) {
        struct pool *p = NULL;
        int64_t count[9] = { 0 };
        int64_t want[9] = { 0 };
        assert_int_equal(pool_open(&p, threads[t], &e), ERR_OK);
        for (int i = 0; i < 100000; i++) {
            int64_t n = i % 10;
            pool_for(p, n, 1, count_run, count);
            for (int64_t k = 0; k < n; k++) {
                want[k]++;
            }
        }
        pool_close(p);
        assert_memory_equal(count, want, sizeof want);
    }
}

struct meeting {
    atomic_int arrived;
    int n_threads;
    atomic_int masked;
};

/* Ends only if every worker takes one piece: a wake-up that gets lost would hang here. */
static void meeting_run(void *ctx, int64_t begin, int64_t end, int worker)
{
    (void)begin;
    (void)end;
    struct meeting *m = ctx;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    if (worker != 0 && sigismember(&set, SIGINT) && !sigismember(&set, SIGBUS)) {
        atomic_fetch_add(&m->masked, 1);
    }
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->n_threads) {
        sched_yield();
    }
}

static void test_pool_wakes(void **state)
{
    (void)state;
    struct err e;
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_open(&p, n_threads, &e), ERR_OK);
        for (int i = 0; i < 200; i++) {
            struct meeting m = { 0, n_threads, 0 };
            if (i % 20 == 0) {
                usleep(1000); /* lets the workers fall asleep; the outcome does not depend on it */
            }
            pool_for(p, n_threads, 1, meeting_run, &m);
            assert_int_equal(atomic_load(&m.masked), n_threads - 1);
        }
        pool_close(p);
    }
}

/* Awake or not, turned on and off between jobs and in the middle of a wait: every piece is done once. */
static void test_pool_awake(void **state)
{
    (void)state;
    struct err e;
    for (int n_threads = 1; n_threads <= 5; n_threads++) {
        struct pool *p = NULL;
        assert_int_equal(pool_open(&p, n_threads, &e), ERR_OK);
        for (int i = 0; i < 100; i++) {
            struct meeting m = { 0, n_threads, 0 };
            pool_awake(p, i % 3 != 0);
            if (i % 20 == 0) {
                usleep(1000);
            }
            pool_for(p, n_threads, 1, meeting_run, &m);
            assert_int_equal(atomic_load(&m.arrived), n_threads);
        }
        pool_awake(p, true); /* closing ends the wait */
        pool_close(p);
    }
}

static void test_pool_open(void **state)
{
    (void)state;
    struct err e;
    struct pool *p = NULL;
    assert_int_equal(pool_open(&p, 0, &e), ERR_ARG);
    assert_int_equal(pool_open(&p, -3, &e), ERR_ARG);
    assert_int_equal(pool_open(&p, 513, &e), ERR_ARG);
    assert_says(&e, "513 threads");
    assert_null(p);
    pool_close(NULL);
    assert_int_equal(pool_open(&p, 512, &e), ERR_OK);
    pool_close(p);
}

static void quota_file(const char *name, const char *text)
{
    char path[512];
    in_dir(path, name);
    for (char *s = strchr(path + strlen(dir) + 1, '/'); s != NULL; s = strchr(s + 1, '/')) {
        *s = '\0';
        mkdir(path, 0700);
        *s = '/';
    }
    if (text != NULL) {
        put_file(path, text);
    } else {
        unlink(path);
        for (char *s = strrchr(path, '/'); s > path + strlen(dir); s = strrchr(path, '/')) {
            *s = '\0';
            rmdir(path);
        }
    }
}

static void test_quota(void **state)
{
    (void)state;
    static const char self[] = "proc/self/cgroup";
    static const char v2_leaf[] = "sys/fs/cgroup/a/b/cpu.max";
    static const char v2_top[] = "sys/fs/cgroup/a/cpu.max";
    static const char v1_quota[] = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us";
    static const char v1_period[] = "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us";
    assert_int_equal(pool_quota_cpus(dir), 0); /* no /proc at all */
    quota_file(self, "0::/a/b\n");
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v2_leaf, "max 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v2_leaf, "250000 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 3);
    quota_file(v2_top, "100000 100000\n"); /* an ancestor's limit holds too */
    assert_int_equal(pool_quota_cpus(dir), 1);
    quota_file(v2_top, "800000 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 3);
    quota_file(v2_leaf, "1 100000\n");
    assert_int_equal(pool_quota_cpus(dir), 1);
    quota_file(v2_leaf, "-5 0\n");
    assert_int_equal(pool_quota_cpus(dir), 8);
    quota_file(v2_leaf, "99999999999999999999999 1");
    assert_int_equal(pool_quota_cpus(dir), 8);
    quota_file(self, "garbage\n\n:\n::\n0::relative\n1:cpuset:/a/b\n");
    assert_int_equal(pool_quota_cpus(dir), 0);

    quota_file(self, "7:cpuacct,cpu:/not/visible\n0::/\n");
    quota_file(v1_quota, "-1\n");
    quota_file(v1_period, "100000\n");
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v1_quota, "200000\n");
    assert_int_equal(pool_quota_cpus(dir), 2);
    quota_file(v1_period, NULL);
    assert_int_equal(pool_quota_cpus(dir), 0);
    quota_file(v1_quota, NULL);
    quota_file(v2_leaf, NULL);
    quota_file(v2_top, NULL);
    quota_file(self, NULL);
    assert_true(pool_cpus() >= 1);
}

static void test_memory(void **state)
{
    (void)state;
    static const char self[] = "proc/self/cgroup", info[] = "proc/meminfo";
    static const char *const v2[] = { "sys/fs/cgroup/a/b/memory.max", "sys/fs/cgroup/a/b/memory.current",
                                      "sys/fs/cgroup/a/b/memory.stat" };
    static const char *const top[] = { "sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/a/memory.current" };
    static const char *const v1[] = { "sys/fs/cgroup/memory/c/memory.limit_in_bytes",
                                      "sys/fs/cgroup/memory/c/memory.usage_in_bytes",
                                      "sys/fs/cgroup/memory/c/memory.stat" };
    assert_int_equal(memory_left(dir), -1);
    quota_file(info, "MemTotal:       24684084 kB\nMemFree: 5 kB\nMemAvailableX: 3 kB\n");
    assert_int_equal(memory_left(dir), -1);
    quota_file(info, "MemTotal:       24684084 kB\nMemAvailable:   8000 kB\nBuffers: 7 kB\n");
    assert_int_equal(memory_left(dir), 8000 * 1024);
    quota_file(self, "0::/a/b\n");
    quota_file(v2[0], "max\n");
    quota_file(v2[1], "1000\n");
    assert_int_equal(memory_left(dir), 8000 * 1024);
    quota_file(v2[0], "5000\n"); /* no list of what can be taken back */
    assert_int_equal(memory_left(dir), 4000);
    quota_file(v2[2], "anon 900\ninactive_file 30\nactive_file 7\ntotal_active_file 1\n");
    assert_int_equal(memory_left(dir), 4037);
    quota_file(top[0], "2000\n"); /* an ancestor's limit holds too */
    quota_file(top[1], "1900\n");
    assert_int_equal(memory_left(dir), 100);
    quota_file(top[1], "2500\n");
    assert_int_equal(memory_left(dir), 0);
    quota_file(info, NULL);
    quota_file(top[1], "1\n");
    assert_int_equal(memory_left(dir), 1999);
    quota_file(info, "MemAvailable: 1 kB\n"); /* the system has less than the group may take */
    assert_int_equal(memory_left(dir), 1024);

    quota_file(self, "4:memory:/c\n");
    quota_file(info, "MemAvailable: 1000 kB\n");
    quota_file(v1[0], "9223372036854771712\n");
    quota_file(v1[1], "700\n");
    assert_int_equal(memory_left(dir), 1000 * 1024);
    quota_file(v1[0], "1000\n");
    quota_file(v1[2], "inactive_file 900\ntotal_inactive_file 20\ntotal_active_file 3\n");
    assert_int_equal(memory_left(dir), 323);
    for (int i = 0; i < 3; i++) {
        quota_file(v1[i], NULL);
        quota_file(v2[i], NULL);
        if (i < 2) {
            quota_file(top[i], NULL);
        }
    }
    quota_file(self, NULL);
    quota_file(info, NULL);
    assert_true(memory_left("") != 0);
}

static void test_cpus_affinity(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        char one[64];
        snprintf(one, sizeof one, "taskset -p -c 0 %ld >/dev/null 2>&1", (long)getpid());
        _exit(system(one) != 0 ? 77 : pool_cpus() == 1 ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        skip(); /* no taskset, or processor 0 is not ours */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_results),
        cmocka_unit_test(test_pool_pieces),
        cmocka_unit_test(test_pool_tiny),
        cmocka_unit_test(test_pool_wakes),
        cmocka_unit_test(test_pool_awake),
        cmocka_unit_test(test_pool_open),
        WITH_DIR(test_quota),
        WITH_DIR(test_memory),
        cmocka_unit_test(test_cpus_affinity),
    };
    return cmocka_run_group_tests_name("base_pool", tests, NULL, NULL);
}
