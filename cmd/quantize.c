/* SPDX-License-Identifier: Apache-2.0 */
/* chimere-quantize - write a model in fewer bits. See chimere-quantize(1). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapt/adapt.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/pool.h"
#include "base/simd.h"
#include "cli/chart.h"
#include "cli/openblas.h"
#include "cli/recipe.h"
#include "cli/table.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "quant/quant.h"
#include "quantize/program.h"
#include "ramp/ramp.h"

static struct quantize_options o = { .losses = { .tokens = 4096, .seed = 1, .probes = "q3_k" } };

static const struct cli_opt opts[] = {
    SECTION("Types"),
    STRING('t', "type", "name", "a mix (q4_k_m) or a type (q4_k); list: all", &o.type),
    PATH(0, "recipe", "file", "rules: which tensors get which type", &o.recipe),
    LIST("tensor", "regex=type", "a rule before all others; repeatable", &o.tensors),
    FLAG(0, "pure", "--type is one type for all, not a mix", &o.pure),
    PATH(0, "imatrix", "file", "importance matrix; with --measure: written", &o.imatrix),
    LIST("merge-lora", "file[:x]", "an adapter, times x, into the weights; repeatable", &o.merge),
    CHOICE("effort", "default|highest", "highest: less error, much slower", &o.effort),
    FLAG(0, "unbiased", "blocks keep their length (see manual)", &o.unbiased),
    FLAG(0, "allow-requantize", "accept tensors that are already quantised", &o.again),
    SECTION("Budgets"),
    OUTPUT(0, "measure", "file", "measure the loss of each type, or resume", &o.losses.path),
    LIST("budget", "what=size", "size=, token-bytes=, vram=,ctx=; list: the curve", &o.budgets),
    OUTPUT(0, "plot", "file", "that curve as a picture: .svg, .png or .pdf", &o.plot),
    FLAG(0, "by-role", "FILE of --measure is another model's, by role", &o.by_role),
    CHOICE("search", "exact|evo", "how the best mix is found (default exact)", &o.search),
    OUTPUT(0, "save-recipe", "file", "write the mix as a recipe", &o.save_recipe),
    SECTION("Measuring"),
    PATH(0, "data", "file", "measure on this text (default: the model's own)", &o.losses.data),
    FLAG(0, "random", "measure on random tokens", &o.losses.random),
    INT64(0, "tokens", "n", "in 16 sequences (default 4096)", &o.losses.tokens, 32),
    STRING(0, "probes", "type,...", "types to measure (default q3_k)", &o.losses.probes),
    STRING(0, "also", "type,...", "more types for budgets, such as iq4_k", &o.losses.also),
    CHOICE("method", "probes|fisher|nsds", "how to measure (default fisher if possible)", &o.losses.method),
    CHOICE("group", "tensor|layer|class", "what is probed at once (default tensor)", &o.losses.group),
    STRING(0, "device", "name", "where the model runs: cpu (default), cuda", &o.losses.device),
    INT64(0, "seed", "n", "of text and evolution (default 1)", &o.losses.seed, 0),
    SECTION("Running"),
    FLAG(0, "dry-run", "print tensors, types and sizes, write nothing", &o.dry_run),
    FLAG(0, "check", "compare a file with the hashes stored in it", &o.check),
    FLAG('f', "force", "replace OUT if it exists", &o.force),
    INT32("threads", "n", "threads (default: one for each processor)", &o.n_threads, 1, 512),
    SECTION("Messages"),
    FLAG('v', "verbose", "the type of every tensor as it is chosen", &o.verbose),
    FLAG('q', "quiet", "errors only", &o.quiet),
    END,
};

static const struct cli_pair pairs[] = {
    { "check", CLI_ALONE, "quiet", "it only reads a file", 0 },
    { "budget", CLI_NEEDS, "measure", "the file of losses, which is made if it is missing", 0 },
    { "data|random|tokens|method|probes|also|group|device|seed", CLI_NEEDS, "measure", NULL, 0 },
    { "save-recipe|search|plot|by-role", CLI_NEEDS, "budget", NULL, 0 },
    { "by-role", CLI_EXCLUDES, "plot|data|random|tokens|method|probes|also|group|device", "nothing is measured", 0 },
    { "plot", CLI_EXCLUDES, "save-recipe|dry-run", "it draws the curve of --budget list", 0 },
    { "merge-lora", CLI_EXCLUDES, "measure", "merge adapters first, into a file of its own", 0 },
    { "data|random", CLI_EXCLUDES, NULL, NULL, 0 },
    { "type", CLI_EXCLUDES, "measure|budget", "it sets the types of all tensors", 0 },
    { "type|recipe", CLI_EXCLUDES, NULL, NULL, 0 },
    { "pure", CLI_NEEDS, "type", NULL, 0 },
    { "dry-run", CLI_EXCLUDES, "save-recipe", "nothing is written", 0 },
    { "unbiased", CLI_EXCLUDES, "budget", "such a mix is always unbiased", 0 },
    { NULL, CLI_NEEDS, NULL, NULL, 0 },
};

static const struct cli program = { .name = "chimere-quantize",
                                    .synopsis = "[options] IN OUT",
                                    .about = "Writes a model in fewer bits; with --check FILE, checks one.",
                                    .opts = opts,
                                    .pairs = pairs };

static double started_ms;

static bool show_progress(void *ctx, uint64_t done, uint64_t total)
{
    double s = (clock_ms() - started_ms) / 1e3, part = total > 0 ? (double)done / (double)total : 1;
    char spent[32], left[32];

    (void)ctx;
    if (part > 0 && s > 1)
        cli_progress("%3.0f %%, %s, %s left", 100 * part, cli_clock(s, spent), cli_clock(s / part - s, left));
    return !cli_interrupted();
}

/* What --measure alone cannot do. */
static void check_measure(int n_operands)
{
    o.losses.imatrix = o.imatrix;
    o.imatrix = NULL;
    if (o.recipe || o.tensors.n > 0 || o.dry_run || (o.force && !o.losses.imatrix) || o.unbiased || o.pure)
        cli_usage("--measure without --budget only measures: no rules, no output");
    if (n_operands != 1)
        cli_usage("--measure without --budget takes one file, IN");
}

static void check_operands(int n)
{
    if (o.dry_run || o.save_recipe ? n < 1 || n > 2 : n != 2)
        cli_usage(o.dry_run       ? "--dry-run takes IN, or IN and OUT"
                  : o.save_recipe ? "--save-recipe takes IN, or IN and OUT"
                                  : "two files are needed: IN and OUT");
}

/* --budget list: nothing is written but a picture. */
static void check_curve(int n_operands)
{
    if (!o.curve)
        cli_usage("--plot draws the curve of --budget list");
    if (o.budgets.n > 1)
        cli_usage("--budget list stands alone");
    if (o.by_role)
        cli_usage("--budget list takes losses of the model itself: not with --by-role");
    if (o.dry_run || o.save_recipe != NULL || o.force || o.imatrix != NULL || o.merge.n > 0)
        cli_usage("--budget list only prints and plots: no output, no --dry-run");
    if (n_operands != 1)
        cli_usage("--budget list takes one file, IN");
    cli_chart_check("plot", o.plot);
}

static bool is_number(const char *s)
{
    return *s != '\0' && s[strspn(s, "0123456789")] == '\0';
}

/* IN OUT TYPE THREADS, as llama-quantize takes them: how many operands are neither IN nor OUT. The threads may be left
 * out, and so is the type if an option says it. */
static int takes_more(char *const *operand, int n)
{
    const bool said = o.type != NULL || o.recipe != NULL || o.budgets.n > 0 || o.losses.path != NULL || o.tensors.n > 0;
    const int at = said ? 2 : 3; /* of the threads */
    long threads;

    if (o.check || n < 3 || n > at + 1 || (said && !is_number(operand[2])))
        return 0;
    if (!said && is_number(operand[2]))
        cli_usage("%s: not a type; a number of threads comes behind the type: IN OUT q4_k_m %s", operand[2],
                  operand[2]);
    if (!said)
        o.type = operand[2];
    if (n == at + 1) {
        threads = strtol(operand[at], NULL, 10);
        if (!is_number(operand[at]) || threads < 1 || threads > 512)
            cli_usage("%s: not a number of threads from 1 to 512", operand[at]);
        if (o.n_threads > 0)
            cli_usage("%s: the number of threads is given twice", operand[at]);
        o.n_threads = (int)threads;
    }
    return n - 2;
}

/* What the table of rules cannot say: values, and operands. */
static void check_usage(int n_operands)
{
    const bool probes = cli_typed(&program, "probes") || cli_typed(&program, "group");
    struct err e;

    for (size_t i = 0; i < o.budgets.n; i++)
        o.curve |= strcmp(o.budgets.v[i], "list") == 0;

    if (o.losses.tokens > 1 << 24)
        cli_usage("--tokens %lld: at most 16777216", (long long)o.losses.tokens);
    if (o.check && n_operands != 1)
        cli_usage("--check takes one file");
    if (o.check)
        return;
    if (o.losses.device != NULL && model_device_name(o.losses.device, &e))
        cli_usage("--device: %s", e.msg);
    if (o.losses.method != MEASURE_PROBES && probes)
        cli_usage("--probes and --group are for --method probes");
    o.losses.said.text = o.losses.data || o.losses.random || cli_typed(&program, "tokens") ||
                         (cli_typed(&program, "seed") && o.search == 0);
    o.losses.said.method = cli_typed(&program, "method");
    o.losses.said.probes = probes;
    o.losses.said.effort = cli_typed(&program, "effort") && o.budgets.n == 0;
    if (o.losses.path && o.budgets.n == 0) {
        check_measure(n_operands);
        return;
    }
    if (!o.type && !o.recipe && o.tensors.n == 0 && o.budgets.n == 0 && o.merge.n == 0)
        cli_usage("no types: --type, --recipe, --tensor or --budget");
    if (o.merge.n > RAMP_MERGE_MAX)
        cli_usage("--merge-lora: at most %d times", RAMP_MERGE_MAX);
    if (o.curve || o.plot)
        check_curve(n_operands);
    else
        check_operands(n_operands);
}

/* The rules of the command line, then those of --recipe, of a mix's file, or one type for all. */
static enum err_code read_rules(struct ramp_recipe *r, struct err *e)
{
    char path[4096], line[128];

    for (size_t i = 0; i < o.tensors.n; i++)
        if (ramp_recipe_add_rule(r, str_of(o.tensors.v[i]), e)) {
            if (e->code == ERR_FORMAT)
                e->code = ERR_ARG;
            return err_wrap(e, "--tensor %.100s", o.tensors.v[i]);
        }
    if (o.unbiased && ramp_recipe_add(r, STR("unbiased"), "--unbiased", e))
        return e->code;
    if (o.recipe && cli_recipe_read(r, o.recipe, e)) {
        if (access(o.recipe, F_OK) != 0 && cli_recipe_path(o.recipe, path, sizeof path))
            cli_usage("--recipe %s: there is no such file; the recipe that comes with the program is --type (-t) %s",
                      o.recipe, o.recipe);
        return e->code;
    }
    if (o.recipe && ramp_recipe_empty(r) && o.budgets.n == 0)
        return err_set(e, ERR_FORMAT, "%s: has neither a rule nor a default", o.recipe);
    if (!o.type)
        return ERR_OK;
    if (!o.pure && cli_recipe_path(o.type, path, sizeof path))
        return cli_recipe_read(r, path, e);
    if (quant_other_find(str_of(o.type)))
        return err_set(e, ERR_ARG, "--type %s: a type of ik_llama.cpp that is neither read nor written", o.type);
    if (strlen(o.type) > 32 || quant_find_name(str_of(o.type)) < 0)
        return !cli_recipe_path("q4_k_m", path, sizeof path)
                   ? err_set(e, ERR_ARG,
                             "--type %.40s: no tensor type, and the mixes that come with the program are not there "
                             "(%s)",
                             o.type, path)
                   : err_set(e, ERR_ARG, "--type %.40s: neither a tensor type nor a mix (-t list prints all)", o.type);
    if (quant_fitter(quant_find_name(str_of(o.type)), 0) == NULL)
        return err_set(e, ERR_ARG, "--type %s: is read but not written", o.type);
    snprintf(line, sizeof line, "default %s", o.type);
    return ramp_recipe_add(r, str_of(line), "--type", e);
}

/* A rule of the command line that no tensor obeys is a mistake. */
static enum err_code check_tensors(const struct ramp_recipe *r, const struct gguf *g, struct err *e)
{
    for (size_t i = 0; i < o.tensors.n; i++) { /* the first rules of all */
        bool found;

        if (ramp_rule_finds(r, i, g, &found, e))
            return e->code;
        if (!found)
            return err_set(e, ERR_ARG, "--tensor %.100s: the model has no matrix of such a name", o.tensors.v[i]);
    }
    return ERR_OK;
}

static bool same_file(const struct stat *a, const char *path)
{
    struct stat b;

    return stat(path, &b) == 0 && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

/* OUT is none of the inputs, and does not exist or may be replaced. */
static enum err_code check_output(const struct gguf *g, const struct ramp_merge *m, const char *out, struct err *e)
{
    struct stat st;
    const char *in;

    if (stat(out, &st) != 0)
        return ERR_OK; /* opening it says what else is wrong */
    for (size_t i = 0; (in = gguf_part_path(g, i)) != NULL; i++)
        if (same_file(&st, in))
            return err_set(e, ERR_ARG, "%s: is the input, and will not be replaced", out);
    for (int i = 0; i < m->n; i++)
        if (same_file(&st, m->adapter[i]->path))
            return err_set(e, ERR_ARG, "%s: is an input, and will not be replaced", out);
    const char *const others[] = { o.imatrix, o.recipe, o.losses.path, o.losses.data };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i] != NULL && same_file(&st, others[i]))
            return err_set(e, ERR_ARG, "%s: is an input, and will not be replaced", out);
    if (!o.force)
        return err_set(e, ERR_ARG, "%s: exists (-f replaces it)", out);
    return ERR_OK;
}

/* Whether a file can be written there, which is found now and not after hours of measuring. */
static enum err_code try_output(const char *path, struct err *e)
{
    struct io_out *out = NULL;

    if (path != NULL && io_out_open(&out, path, e))
        return e->code;
    io_out_abort(out);
    return ERR_OK;
}

static void print_plan(FILE *to, const struct gguf *g, const struct ramp_plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int64_t rows = t->ne[1] * t->ne[2] * t->ne[3];
        int64_t bytes = quant_row_bytes(p->v[i].type, t->ne[0]) * rows;
        const char *note = p->v[i].kept ? "kept" : p->v[i].replaced ? "rows are too short" : "";

        fprintf(to, "%-36.*s %-7s %-7s %14" PRId64 " %7.4f%s%s\n", STR_ARG(t->name), quant_types[t->type]->name,
                quant_types[p->v[i].type]->name, bytes, 8.0 * (double)bytes / (double)(rows * t->ne[0]),
                *note ? "  " : "", note);
    }
}

/* Of the tensors' data, and of the file with all that describes them. */
static enum err_code print_totals(FILE *to, const struct gguf *g, const struct ramp_plan *p,
                                  const struct ramp_recipe *r, const struct ramp_merge *merge, struct err *e)
{
    int *type = calloc(p->n + 1, sizeof *type);
    uint64_t bytes = 0;

    for (size_t i = 0; i < p->n && type != NULL; i++)
        type[i] = p->v[i].type;
    if (type != NULL)
        bytes = ramp_file_bytes(g, type, r, merge->n > 0 ? merge : NULL, CHIMERE_VERSION);
    free(type);
    if (bytes == 0)
        return err_nomem(e);
    fprintf(to, "%zu tensors, %" PRIu64 " bytes, in a file of %" PRIu64 " bytes, %.4f bits per weight\n", p->n,
            p->bytes, bytes, p->elems > 0 ? 8.0 * (double)bytes / (double)p->elems : 0);
    return ERR_OK;
}

static enum err_code write_model(const struct gguf *g, const struct ramp_plan *p, const struct ramp_recipe *r,
                                 const struct ramp_importance *im, const struct ramp_merge *merge, const char *out,
                                 struct err *e)
{
    size_t had = 0;
    struct pool *pool;
    struct ramp_job job = {
        .g = g,
        .plan = p,
        .importance = im,
        .recipe = ramp_recipe_text(r),
        .version = CHIMERE_VERSION,
        .coder = { .simd = simd_features(), .effort = o.effort, .unbiased = ramp_recipe_unbiased(r) },
        .merge = merge->n > 0 ? merge : NULL,
        .progress = { show_progress, NULL }
    };

    if (pool_open(&pool, o.n_threads > 0 ? o.n_threads : pool_cpus(), e))
        return e->code;
    job.coder.pool = pool;
    job.had = &had;
    started_ms = clock_ms();
    enum err_code rc = ramp_quantize(&job, out, e);

    cli_progress_end();
    pool_close(pool);
    if (rc == ERR_OK && !o.quiet) {
        fprintf(stderr, "%s: %.1f s, ", out, (clock_ms() - started_ms) / 1e3);
        rc = print_totals(stderr, g, p, r, merge, e);
        if (had > 0)
            fprintf(stderr, "%zu tensors were there, of a run that was killed\n", had);
    }
    return rc;
}

/* The adapters of --merge-lora. */
static enum err_code open_merge(struct ramp_merge *m, const struct gguf *g, struct err *e)
{
    for (size_t i = 0; i < o.merge.n; i++) {
        struct adapter *a;
        char path[4096];

        m->scale[i] = 1;
        if (cli_file_number(o.merge.v[i], path, sizeof path, -CLI_SCALE_MAX, CLI_SCALE_MAX, &m->scale[i], e) ||
            adapter_open(&a, path, e))
            return e->code;
        m->adapter[m->n++] = a;
        if (adapter_check(a, g, e))
            return e->code;
    }
    return ERR_OK;
}

/* Matrices that a file of importance does not have: their columns count alike; a warning names them. llama-imatrix
 * leaves out the embedding, whose rows are looked up, and the output. */
static enum err_code open_importance(struct ramp_importance **im, const struct gguf *g, struct err *e)
{
    const size_t n = gguf_n_tensors(g);
    bool *has = malloc((n + 1) * sizeof *has);
    size_t with = 0, all = 0, others = 0;

    if (has == NULL)
        return err_nomem(e);
    if (ramp_importance_open(im, o.imatrix, e) == ERR_OK && ramp_importance_check(*im, g, has, e) == ERR_OK) {
        for (size_t i = 0; i < n; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);

            if (ramp_is_kept(t))
                continue;
            all++;
            with += has[i];
            others += !has[i] && !str_is(t->name, "token_embd.weight") && !str_is(t->name, "output.weight");
            if (!has[i])
                cli_note("%.*s: no importance, its columns count alike", STR_ARG(t->name));
        }
        if (others > 0)
            cli_warn("%s: importance for %zu of %zu matrices%s", o.imatrix, with, all,
                     o.verbose ? "" : " (-v names the others)");
    }
    free(has);
    return e->code;
}

/* Rules for the best mix, after those there are, which they obey. */
static enum err_code find_mix(struct ramp_recipe **r, const struct gguf *g, const struct ramp_losses *l, bool totals,
                              struct err *e)
{
    struct ramp_recipe *mix = NULL;
    char *text = NULL;
    enum err_code rc = cli_quantize_mix(&text, &o, g, l, *r, e);

    if (rc == ERR_OK && o.save_recipe)
        rc = io_write_file(o.save_recipe, str_of(text), e);
    if (rc == ERR_OK && !o.quiet) /* the lines with what is predicted; the totals at the end have the file's size */
        for (const char *p = text; *p == '#'; p = strchr(p, '\n') + 1)
            if (!totals || strncmp(p, "# file:", 7) != 0)
                fprintf(o.dry_run ? stdout : stderr, "%.*s\n", (int)strcspn(p, "\n"), p);
    if (rc == ERR_OK)
        rc = ramp_recipe_open(&mix, e) ? e->code : ramp_recipe_add(mix, str_of(text), "the mix", e);
    free(text);
    if (rc) {
        ramp_recipe_close(mix);
        return rc;
    }
    ramp_recipe_close(*r);
    *r = mix;
    return ERR_OK;
}

static enum err_code quantize(const char *in, const char *out, struct err *e)
{
    struct gguf *g = NULL;
    struct ramp_recipe *r = NULL;
    struct ramp_importance *im = NULL;
    struct ramp_losses l = { 0 };
    struct ramp_plan p = { 0 };
    struct ramp_merge merge = { .n = 0 };
    enum err_code rc = ramp_recipe_open(&r, e) || read_rules(r, e) || gguf_open(&g, in, e) || model_check(g, e) ||
                               (o.imatrix && open_importance(&im, g, e)) || check_tensors(r, g, e) ||
                               open_merge(&merge, g, e) ||
                               (out != NULL && !o.dry_run && check_output(g, &merge, out, e)) ||
                               (o.losses.imatrix && check_output(g, &merge, o.losses.imatrix, e)) ||
                               (o.losses.path && !o.dry_run &&
                                (try_output(out, e) || try_output(o.save_recipe, e) || try_output(o.plot, e) ||
                                 try_output(o.losses.imatrix, e)))
                           ? e->code
                           : ERR_OK;

    if (rc == ERR_OK && o.curve)
        rc = cli_quantize_measure(&l, &o, g, e) || cli_quantize_curve(&o, &l, r, e) ? e->code : ERR_OK;
    else if (rc == ERR_OK)
        rc = (o.losses.path && cli_quantize_measure(&l, &o, g, e)) ||
                     (o.budgets.n > 0 && find_mix(&r, g, &l, o.dry_run || out != NULL, e)) ||
                     ((!o.losses.path || o.budgets.n > 0) && ramp_plan_open(&p, r, g, im != NULL, o.again, e))
                 ? e->code
                 : ramp_plan_merge(&p, g, &merge, o.again, e);
    if (rc == ERR_OK && o.dry_run && !o.curve) {
        print_plan(stdout, g, &p);
        rc = print_totals(stdout, g, &p, r, &merge, e);
    } else if (rc == ERR_OK && out != NULL) {
        if (o.verbose)
            print_plan(stderr, g, &p);
        rc = write_model(g, &p, r, im, &merge, out, e);
    }
    ramp_plan_close(&p);
    for (int i = 0; i < merge.n; i++)
        adapter_close((struct adapter *)(uintptr_t)merge.adapter[i]);
    ramp_losses_close(&l);
    ramp_importance_close(im);
    gguf_close(g);
    ramp_recipe_close(r);
    return rc;
}

static int check_file(const char *path, struct err *e)
{
    struct gguf *g;
    struct progress p = { show_progress, NULL };
    size_t bad;
    int status = EXIT_OK;

    if (gguf_open(&g, path, e))
        return cli_fail(e);
    started_ms = clock_ms();
    if (ramp_check(g, &p, &bad, e)) {
        status = cli_fail(e);
    } else if (bad < gguf_n_tensors(g)) {
        printf("%.*s: differs from what was written\n", STR_ARG(gguf_tensor_at(g, bad)->name));
        status = EXIT_NO;
    } else if (!o.quiet) {
        printf("%s: %zu tensors as they were written\n", path, gguf_n_tensors(g));
    }
    cli_progress_end();
    gguf_close(g);
    return status;
}

int main(int argc, char **argv)
{
    struct err e = { 0 };
    int first, status = EXIT_OK;

    cli_prepare_openblas(argv);
    first = cli_parse(&program, argc, argv);
    if (o.type != NULL && strcmp(o.type, "list") == 0) {
        if (argc - first > 0)
            cli_usage("--type list takes no files");
        status = cli_quantize_list(&e) ? cli_fail(&e) : EXIT_OK;
        return cli_close_stdout(status);
    }
    argc -= takes_more(argv + first, argc - first);
    check_usage(argc - first);
    if (argc - first > 1 && strcmp(argv[first + 1], "-") == 0)
        cli_usage("-: a model is written to a file with a name, not to standard output");
    cli_check_kind("save-recipe", o.save_recipe, STR("# predicted: KL"), "recipe of a search");
    cli_set_verbosity(o.quiet ? -1 : o.verbose);
    cli_signals(argv[first]);
    cli_catch_interrupts();
    if (o.check)
        status = check_file(argv[first], &e);
    else if (quantize(argv[first], argc - first > 1 ? argv[first + 1] : NULL, &e))
        status = cli_fail(&e);
    status = cli_close_stdout(status);
    cli_reraise();
    return status;
}
