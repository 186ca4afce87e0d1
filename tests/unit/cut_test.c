/* SPDX-License-Identifier: Apache-2.0 */
/* cut_test.c - documents cut into texts: their headings, lines, sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "recall/cut.h"

static char got[1 << 16];
static size_t n_got;

static enum err_code print_chunk(void *ctx, const struct recall_chunk *c, struct err *e)
{
    (void)ctx;
    (void)e;
    n_got += (size_t)snprintf(got + n_got, sizeof got - n_got, "%lld|%.*s|%.*s\n", (long long)c->line,
                              (int)c->heading.n, c->heading.p, (int)c->text.n, c->text.p);
    assert_true(n_got < sizeof got);
    return ERR_OK;
}

static const char *cut(enum recall_form form, size_t chunk, size_t overlap, const char *document)
{
    const struct recall_cut_opts o = { form, chunk, overlap };
    struct err e = { 0 };

    n_got = 0;
    got[0] = '\0';
    if (recall_cut(str_of(document), &o, print_chunk, NULL, &e))
        fail_msg("%s", e.msg);
    return got;
}

static void plain_text(void **state)
{
    (void)state;
    assert_string_equal(cut(RECALL_PLAIN, 100, 0, "\n\n one\ntwo\n \nthree\r\n\n\n# four"),
                        "3||one\ntwo\n\nthree\n\n# four\n");
    assert_string_equal(cut(RECALL_PLAIN, 9, 0, "aaaa\nbbbb\n\ncccc\n\ndddd\n"), "1||aaaa\nbbbb\n4||cccc\n6||dddd\n");
    assert_string_equal(cut(RECALL_PLAIN, 20, 0, "One two. Three four five six\nseven eight nine ten"),
                        "1||One two. Three four\n1||five six\nseven\n2||eight nine ten\n");
    assert_string_equal(cut(RECALL_PLAIN, 20, 9, "One two. Three four. Five six.\n\nseven"),
                        "1||One two. Three\n1||Three four.\n1||four. Five six.\n1||Five six.\n\nseven\n");
    assert_string_equal(cut(RECALL_PLAIN, 8, 0, "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"),
                        "1||\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\n1||\xc3\xa4\n");
    assert_string_equal(cut(RECALL_PLAIN, 8, 0, ""), "");
}

static void markdown(void **state)
{
    (void)state;
    assert_string_equal(
        cut(RECALL_MARKDOWN, 100, 0,
            "before\n# One #\ntext\n\n## Two\n```\n# no heading\n\nstill\n```\nThree\n===\n- item\n#tag\n"),
        "1||before\n3|One|text\n6|One > Two|```\n# no heading\n\nstill\n```\nThree\n===\n- item\n#tag\n");
    assert_string_equal(cut(RECALL_MARKDOWN, 100, 0, "Title\n=====\n\na\n\nSub\n---\nb\n# Next\nc"),
                        "4|Title|a\n8|Title > Sub|b\n10|Next|c\n");
}

static void html(void **state)
{
    (void)state;
    assert_string_equal(
        cut(RECALL_HTML, 100, 0,
            "<!DOCTYPE html><title>T &amp; U</title>\n<style>p { x }</style><!-- <p>no -->\n<h2 a='>'>He<b>ad</b></h2>"
            "<p>a  b\nc&nbsp;d &#65;&lt;x&gt; &unknown; 1 < 2<p>next<script>if (a<b) </script> end\n<pre>x\n  y</pre>"),
        "3|T & U > Head|a b c d A<x> &unknown; 1 < 2\n\nnext end\n\nx\n  y\n");
    assert_string_equal(cut(RECALL_HTML, 100, 0, "<h1>open <p>x <"), "");
    assert_string_equal(cut(RECALL_HTML, 100, 0, "a<script>never closed <p>b"), "1||a\n");
}

static void manuals(void **state)
{
    (void)state;
    assert_string_equal(
        cut(RECALL_MAN, 300, 0,
            ".\\\" comment\n.Dd May 1, 2026\n.Dt TOOL 1\n.Sh NAME\n.Nm tool\n.Nd does it\n.Sh OPTIONS\n.Bl -tag\n"
            ".It Fl o , Fl -out Ar file\nWrites to\n.Ar file ;\nsee\n.Xr other 1 .\n.It Xo\n.Op Fl x Ns = Ns Ar "
            "y\n.Xc\nSays\n"
            ".Ql yes .\n.Pq Pa a.txt\n.El\n.Ss More\nThe\n.Nm\nprogram.\n"),
        "5|TOOL(1) > NAME|tool - does it\n"
        "9|TOOL(1) > OPTIONS|-o, --out file Writes to file; see other(1).\n\n[-x=y] Says 'yes'. (a.txt)\n"
        "22|TOOL(1) > OPTIONS > More|The tool program.\n");
    assert_string_equal(cut(RECALL_MAN, 300, 0,
                            ".TH \"A B\" 3 x\n.de XX\n.SH no\n..\n.SH \"THE NAME\"\n.TP\n.BI \\-f \" file\"\nreads "
                            "\\fIit\\fP\\(emnow\n.PP\n\\&.x \\*(lqq\\*(rq\n"
                            ".nf\na\n  b\n.fi\n"),
                        "7|A B(3) > THE NAME|-f file reads it\xe2\x80\x94now\n\n.x \"q\"\n\na\n  b\n");
}

static void forms(void **state)
{
    (void)state;
    assert_int_equal(recall_form_of(STR("a.1"), STR(".Dd")), RECALL_MAN);
    assert_int_equal(recall_form_of(STR("a.1"), STR("text")), RECALL_PLAIN);
    assert_int_equal(recall_form_of(STR("a.3pm"), STR("'\\\" t")), RECALL_MAN);
    assert_int_equal(recall_form_of(STR("README.md"), STR("")), RECALL_MARKDOWN);
    assert_int_equal(recall_form_of(STR("x.html"), STR("")), RECALL_HTML);
    assert_int_equal(recall_form_of(STR(".md"), STR("")), RECALL_PLAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text), cmocka_unit_test(markdown), cmocka_unit_test(html),
        cmocka_unit_test(manuals),    cmocka_unit_test(forms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
