/* SPDX-License-Identifier: Apache-2.0 */
/* cut_man.c - manuals in roff, with the macros of man(7) or mdoc(7), into paragraphs and headings.   room: recall
 *
 * Nothing is formatted: macros end paragraphs or are words of one; requests and conditions are left out. */
#include <stdlib.h>
#include <string.h>

#include "recall/cutter.h"

struct man {
    struct recall_cutter *c;
    int64_t line;
    struct recall_bytes out, name; /* out: words of the line that is read; name: of Nm */
    bool literal;                  /* lines stay lines */
    bool joined;                   /* no blank before the next word */
};

static bool is_one_of(struct str name, const char *list)
{
    for (const char *at = list; name.n > 0 && *at != '\0';) {
        const size_t n = strcspn(at, " ");

        if (n == name.n && memcmp(at, name.p, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

static void put(struct man *m, struct str s)
{
    if (m->c->code == ERR_OK && !recall_bytes_add(&m->out, s, m->c->e))
        m->c->code = m->c->e->code;
}

/* ---- escapes ---- */

static const char *special(struct str name)
{
    static const char *const known[][2] = {
        { "aq", "'" },
        { "dq", "\"" },
        { "lq", "\"" },
        { "rq", "\"" },
        { "oq", "'" },
        { "cq", "'" },
        { "ga", "`" },
        { "ha", "^" },
        { "ti", "~" },
        { "mi", "-" },
        { "hy", "-" },
        { "bu", "*" },
        { "rs", "\\" },
        { "em", "\xe2\x80\x94" },
        { "en", "\xe2\x80\x93" },
        { "co", "\xc2\xa9" },
        { "mu", "x" },
        { "->", "\xe2\x86\x92" },
        { "<=", "<=" },
        { ">=", ">=" },
        { "ba", "|" },
        { "at", "@" },
        { "sh", "#" },
        { "Do", "$" },
        { "ul", "_" },
        { "Lq", "\"" },
        { "Rq", "\"" },
        { "Ba", "|" },
        { "Am", "&" },
        { "lB", "[" },
        { "rB", "]" },
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_is(name, known[i][0]))
            return known[i][1];
    return "";
}

/* Past the name at s[i]: one character, two after '(', or what is between '[' and ']'. */
static struct str escape_name(struct str s, size_t *i)
{
    size_t from = *i, n = 1;

    if (from < s.n && s.p[from] == '(') {
        from++;
        n = 2;
    } else if (from < s.n && s.p[from] == '[') {
        const char *end = memchr(s.p + from, ']', s.n - from);

        from++;
        n = end != NULL ? (size_t)(end - s.p) - from : s.n - from;
        *i = from + n + 1;
    }
    from = from < s.n ? from : s.n;
    n = n < s.n - from ? n : s.n - from;
    if (*i < from + n)
        *i = from + n;
    return (struct str){ s.p + from, n };
}

/* An escape at s[i], behind the backslash; the place behind it. */
static size_t put_escape(struct man *m, struct str s, size_t i)
{
    const char c = i < s.n ? s.p[i] : ' ';
    struct str name;

    if (strchr("&|^%/,:)a{}cdtupr", c) != NULL)
        return i + 1;
    if (strchr("fFmMnYkgs*(", c) != NULL || c == '[') {
        i += c != '(' && c != '[';
        if (c == 's')
            while (i < s.n && (s.p[i] == '+' || s.p[i] == '-'))
                i++;
        name = escape_name(s, &i);
        if (c == '(' || c == '[' || c == '*')
            put(m, str_of(special(name)));
        return i;
    }
    if (strchr("hvwlLDNoxXzRSHA", c) != NULL) { /* \h'...' */
        const char *end = i + 2 < s.n ? memchr(s.p + i + 2, s.p[i + 1], s.n - i - 2) : NULL;

        return end != NULL ? (size_t)(end - s.p) + 1 : s.n;
    }
    if (c == '~' || c == ' ' || c == '0')
        put(m, STR(" "));
    else if (c == 'e' || c == 'E')
        put(m, STR("\\"));
    else if (c == '-' || (unsigned char)c > ' ')
        put(m, (struct str){ s.p + i, 1 });
    return i + 1;
}

static void put_text(struct man *m, struct str s)
{
    for (size_t i = 0; i < s.n;) {
        const char *esc = memchr(s.p + i, '\\', s.n - i);
        const size_t n = esc != NULL ? (size_t)(esc - s.p) - i : s.n - i;

        put(m, (struct str){ s.p + i, n });
        i += n;
        if (esc == NULL)
            continue;
        if (i + 1 < s.n && (s.p[i + 1] == '"' || s.p[i + 1] == '#'))
            return;
        i = put_escape(m, s, i + 1);
    }
}

/* ---- arguments ---- */

/* The next argument at s[*at]; false: there is none. *quoted: it stood in quotes. */
static bool next_arg(struct str s, size_t *at, struct str *arg, bool *quoted)
{
    size_t i = *at, from;

    while (i < s.n && (s.p[i] == ' ' || s.p[i] == '\t'))
        i++;
    if (i >= s.n || (s.p[i] == '\\' && i + 1 < s.n && s.p[i + 1] == '"'))
        return false;
    *quoted = s.p[i] == '"';
    from = i += *quoted;
    while (i < s.n && (*quoted ? s.p[i] != '"' : s.p[i] != ' ' && s.p[i] != '\t'))
        i += s.p[i] == '\\' && i + 1 < s.n ? 2 : 1;
    i = i < s.n ? i : s.n;
    *arg = (struct str){ s.p + from, i - from };
    *at = i + *quoted;
    return true;
}

static void put_word(struct man *m, struct str s)
{
    if (m->out.n > 0 && !m->joined)
        put(m, STR(" "));
    m->joined = false;
    put_text(m, s);
}

static void put_mark(struct man *m, const char *open)
{
    put_word(m, str_of(open));
    m->joined = true;
}

static bool is_closing(struct str s)
{
    return s.n == 1 && strchr(".,:;)]?!", s.p[0]) != NULL;
}

/* Words of man(7): alternating fonts have no blanks between them. */
static void put_args(struct man *m, struct str s, bool joined)
{
    struct str arg;
    size_t at = 0;
    bool quoted;

    for (int i = 0; next_arg(s, &at, &arg, &quoted); i++) {
        m->joined = m->joined || (joined && i > 0);
        put_word(m, arg);
    }
    m->joined = false;
}

/* ---- mdoc ---- */

static const char *const quotes[][3] = {
    { "Op Oo Bq Bo", "[", "]" }, { "Pq Po", "(", ")" }, { "Dq Do Qq Qo", "\"", "\"" },
    { "Sq So Ql", "'", "'" },    { "Aq Ao", "<", ">" }, { "Brq Bro", "{", "}" },
};

/* A line of macros that call each other. */
static void put_mdoc(struct man *m, struct str s)
{
    static const char inlines[] =
        "Ar Pa Ev Li Cm Va Vt Fn Ft Fa Em Sy Ic Sx Tn No An Lk Mt Dv Er In Ux Ox Nx Fx Bx At Cd Ad "
        "Xo Xc Bk Ek Me Nm Fl Xr Nd Ns Pf Ta Ap Oc Pc Dc Qc Sc Ac Bc Brc It Dl D1 Ms St Nm";
    const char *closing[16];
    int open = 0;
    struct str arg, macro = { "", 0 };
    size_t at = 0;
    bool quoted, name = false; /* name: of Nm, which may have none */

    while (next_arg(s, &at, &arg, &quoted)) {
        int q = -1;

        for (int i = 0; !quoted && i < (int)(sizeof quotes / sizeof quotes[0]); i++)
            q = is_one_of(arg, quotes[i][0]) ? i : q;
        const bool called = q >= 0 || (!quoted && is_one_of(arg, inlines));

        if (name && (called || is_closing(arg)))
            put_word(m, (struct str){ m->name.p, m->name.n });
        else if (name && m->name.n == 0 && !recall_bytes_add(&m->name, arg, m->c->e))
            m->c->code = m->c->e->code;
        name = false;
        if (q >= 0) {
            put_mark(m, quotes[q][1]);
            if (arg.p[1] != 'o' && arg.p[1] != 'r' && open < 16) /* what lasts to the end of the line */
                closing[open++] = quotes[q][2];
            else if (str_is(arg, "Brq") && open < 16)
                closing[open++] = "}";
        } else if (called) {
            macro = arg;
            if (str_is(arg, "Nm"))
                name = true;
            else if (str_is(arg, "Fl"))
                put_mark(m, "-");
            else if (str_is(arg, "Nd"))
                put_word(m, STR("-"));
            else if (str_is(arg, "Ns") || str_is(arg, "Ap")) {
                m->joined = true;
                if (str_is(arg, "Ap"))
                    put_mark(m, "'");
            } else if (is_one_of(arg, "Oc Bc")) {
                m->joined = true;
                put_word(m, STR("]"));
            } else if (is_one_of(arg, "Pc Dc Qc Sc Ac Brc")) {
                m->joined = true;
                put_word(m, str_of(arg.p[0] == 'P'   ? ")"
                                   : arg.p[0] == 'S' ? "'"
                                   : arg.p[0] == 'A' ? ">"
                                   : arg.p[0] == 'B' ? "}"
                                                     : "\""));
            }
        } else if (str_is(macro, "Xr") && m->out.n > 0 && arg.n == 1 && arg.p[0] >= '1' && arg.p[0] <= '9') {
            put(m, STR("("));
            put_text(m, arg);
            put(m, STR(")"));
            macro = STR("No");
        } else {
            if (is_closing(arg) && !quoted) {
                for (; open > 0 && at >= s.n; open--) /* punctuation at the end stands behind what is closed */
                    put(m, str_of(closing[open - 1]));
                m->joined = true;
            }
            if (str_is(macro, "Fl") && m->out.n > 0 && !m->joined && !is_closing(arg))
                put_mark(m, "-");
            put_word(m, arg);
            m->joined = arg.n == 1 && (arg.p[0] == '(' || arg.p[0] == '[') && !quoted;
            if (str_is(macro, "Pf"))
                m->joined = true;
        }
    }
    if (name)
        put_word(m, (struct str){ m->name.p, m->name.n });
    for (; open > 0; open--)
        put(m, str_of(closing[open - 1]));
    if (!str_is(macro, "Ns"))
        m->joined = false;
}

/* ---- lines ---- */

static void give_line(struct man *m)
{
    if (m->out.n > 0)
        recall_cutter_add(m->c, m->literal ? '\n' : ' ', (struct str){ m->out.p, m->out.n }, m->line);
    m->out.n = 0;
}

static void heading(struct man *m, int level, struct str args)
{
    m->literal = false;
    m->joined = false;
    put_mdoc(m, args);
    recall_cutter_heading(m->c, level, (struct str){ m->out.p, m->out.n });
    m->out.n = 0;
}

/* "TITLE(SECTION)" */
static void title(struct man *m, struct str args)
{
    struct str name, section;
    size_t at = 0;
    bool quoted;

    if (next_arg(args, &at, &name, &quoted)) {
        put_text(m, name);
        if (next_arg(args, &at, &section, &quoted) && section.n > 0) {
            put(m, STR("("));
            put_text(m, section);
            put(m, STR(")"));
        }
    }
    recall_cutter_heading(m->c, 0, (struct str){ m->out.p, m->out.n });
    m->out.n = 0;
}

static void control_line(struct man *m, struct str name, struct str args)
{
    if (is_one_of(name, "TH Dt"))
        title(m, args);
    else if (is_one_of(name, "SH Sh"))
        heading(m, 1, args);
    else if (is_one_of(name, "SS Ss"))
        heading(m, 2, args);
    else if (is_one_of(name, "Pp PP LP P TP TQ HP El RS RE sp Bl")) {
        recall_cutter_break(m->c);
    } else if (is_one_of(name, "nf EX Bd fi EE Ed")) {
        recall_cutter_break(m->c);
        m->literal = is_one_of(name, "nf EX") ||
                     (is_one_of(name, "Bd") && (str_has(args, "-literal") || str_has(args, "-unfilled")));
    } else if (is_one_of(name, "It")) {
        recall_cutter_break(m->c);
        put_mdoc(m, args);
    } else if (is_one_of(name, "IP")) {
        struct str tag;
        size_t at = 0;
        bool quoted;

        recall_cutter_break(m->c);
        if (next_arg(args, &at, &tag, &quoted))
            put_text(m, tag);
    } else if (is_one_of(name, "B I R SM SB CW"))
        put_args(m, args, false);
    else if (is_one_of(name, "BR RB BI IB IR RI"))
        put_args(m, args, true);
    else if (is_one_of(name, "Brq Bro Brc") ||
             (name.n == 2 && name.p[0] >= 'A' && name.p[0] <= 'Z' && name.p[1] >= 'a' && name.p[1] <= 'z' &&
              !is_one_of(name, "Dd Os Sm Rs Re Th")))
        put_mdoc(m, (struct str){ name.p, args.n > 0 ? (size_t)(args.p + args.n - name.p) : name.n });
    give_line(m);
}

void recall_cut_man(struct recall_cutter *c, struct str document)
{
    struct man m = { .c = c };
    struct str s;
    const char *until = NULL; /* what ends lines that are left out */
    size_t at = 0;

    while (c->code == ERR_OK && recall_next_line(document, &at, &m.line, &s)) {
        if (s.n > 0 && s.p[s.n - 1] == '\r')
            s.n--;
        if (until != NULL) {
            until = s.n >= strlen(until) && memcmp(s.p, until, strlen(until)) == 0 ? NULL : until;
            continue;
        }
        if (s.n == 0 || (s.p[0] != '.' && s.p[0] != '\'')) {
            if (s.n == 0 && !m.literal)
                recall_cutter_break(c);
            put_text(&m, s);
            if (m.out.n > 0 && m.joined) {
                recall_cutter_add(c, '\0', (struct str){ m.out.p, m.out.n }, m.line);
                m.out.n = 0;
            }
            m.joined = false;
            give_line(&m);
            continue;
        }
        size_t from = 1;

        while (from < s.n && (s.p[from] == ' ' || s.p[from] == '\t'))
            from++;
        size_t end = from;

        while (end < s.n && s.p[end] != ' ' && s.p[end] != '\t' && s.p[end] != '\\')
            end++;
        const struct str name = { s.p + from, end - from }, args = { s.p + end, s.n - end };

        if (is_one_of(name, "de de1 am ig"))
            until = "..";
        else if (is_one_of(name, "EQ"))
            until = ".EN";
        else
            control_line(&m, name, args);
    }
    give_line(&m);
    free(m.out.p);
    free(m.name.p);
}
