/* SPDX-License-Identifier: Apache-2.0 */
/* document_test.c - what a document says on questions: lines with a key, words of paragraphs, and when it says nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf/gguf.h"
#include "recall/recall.h"
#include "text/text.h"

static struct text *tokens;

static struct recall_said ask(const char *document, const char *question)
{
    struct recall_said said;
    struct err e = { 0 };

    if (recall_answer(&said, str_of(document), tokens, str_of(question), &e))
        fail_msg("%s", e.msg);
    return said;
}

/* want NULL: nothing is said. */
static void says(const char *document, const char *question, const char *want)
{
    const struct recall_said said = ask(document, question);

    if (want == NULL ? said.text.n > 0 : !str_is(said.text, want))
        fail_msg("%s: \"%.*s\" instead of \"%s\"", question, (int)said.text.n, said.text.p,
                 want != NULL ? want : "(nothing)");
}

static const char lines[] = "# Devices\n"
                            "\n"
                            "XJ-200: port 14, even parity\n"
                            "- **Back door code**: 48151623\n"
                            "vumpf - a bird that sings at night\r\n"
                            "M\xc3\xbchle Nord = \xc3\xb6"
                            "ffnet um acht\n"
                            "zorbl:tools\n"
                            "lily-doc-it: texts in Italian\n";

static void keys_of_lines(void **state)
{
    (void)state;
    says(lines, "What are the settings of XJ-200?", "port 14, even parity");
    says(lines, "xj200 settings?", "port 14, even parity");
    says(lines, "Tell me about the xj 200", "port 14, even parity");
    says(lines, "What is the code of the back door?", "48151623");
    says(lines, "Do you know the Back-Door code?", "48151623");
    says(lines, "What are VUMPFS?", "a bird that sings at night");
    says(lines, "What is the vumpf's meaning?", "a bird that sings at night");
    says(lines,
         "Wann \xc3\xb6"
         "ffnet die M\xc3\xbchle Nord?",
         "\xc3\xb6"
         "ffnet um acht");
    says(lines, "What is lily-doc-it?", "texts in Italian");
    says(lines, "What is lily-doc-ca?", NULL);
    says(lines, "What is an XJ-300?", NULL);
    says(lines, "What is the code of the front gate?", NULL);
    says(lines, "Is the code of the back door 48151623?", NULL);
    says(lines, "Is the vumpf a bird?", NULL);
    says(lines, "Write a long story in which a vumpf meets a princess and a dragon in the forest", NULL);
    assert_int_equal(ask(lines, "What is the code of the back door?").line, 4);
    assert_true(ask(lines, "What is a vumpf?").share > 0.9F);
}

static const char prose[] =
    "Tolbridge was founded in 1722. Its mayor is Anna Kell, a weaver. About 4900 people live there, and the town hall "
    "is "
    "painted dark green. Boris Okonkwo-Strand built the bridge, which is 14 metres long.\n"
    "\n"
    "Mira Zane lives near the old mill. She collects brass buttons and was born on 13 May 1902. She is married to "
    "Clara Rebe.\n";

static void words_of_paragraphs(void **state)
{
    (void)state;
    says(prose, "When was Tolbridge founded?", "1722");
    says(prose, "In which year was the founding of Tolbridge?", "1722");
    says(prose, "Who is the mayor of Tolbridge?", "Anna Kell");
    says(prose, "How many inhabitants does Tolbridge have?", "4900");
    says(prose, "What colour is the town hall of Tolbridge?", "dark green");
    says(prose, "Who built the bridge in Tolbridge?", "Boris Okonkwo-Strand");
    says(prose, "How long is the bridge of Tolbridge?", "14 metres");
    says(prose, "Where does Mira Zane live?", "near the old mill");
    says(prose, "What does Mira Zane collect?", "brass buttons");
    says(prose, "When was Mira Zane born?", "13 May 1902");
    says(prose, "Who is Mira Zane married to?", "Clara Rebe");
    says(prose, "Who is married to Clara Zane?", NULL); /* of two people */
    says(prose, "Where does Clara Rebe live?", NULL);   /* not she */
    says(prose, "How tall is Mira Zane?", NULL);
    says(prose, "When was Karvik founded?", NULL);
    says(prose, "Does Mira Zane live near the old mill?", NULL);
    assert_int_equal(ask(prose, "What does Mira Zane collect?").line, 3);
}

static const char fair[] =
    "The Nofano Fair begins on 9 July each year. It is held in Pelham. The winner gets a wooden crown. Its main "
    "product "
    "is blue glass, and the hall was designed by Ines Kole. It connects Pelham and Ustria.\n"
    "\n"
    "In the years that followed the first war the harbour, which many people had already left, was moved by Clara Rebe "
    "and by Leon Sand to a place near the old mill, where boats of all sizes were repaired.\n";

static void kinds_of_answers(void **state)
{
    (void)state;
    says(fair, "When does the Nofano Fair start?", "9 July");
    says(fair, "Where does the Nofano Fair take place?", "Pelham");
    says(fair, "What is the prize at the Nofano Fair?", "a wooden crown");
    says(fair, "What product does the Nofano Fair make?", "blue glass");
    says(fair, "Who is the designer of the hall of the Nofano Fair?", "Ines Kole");
    says(fair, "Which towns does the Nofano Fair connect?", "Pelham and Ustria");
    says(fair, "Who begins the Nofano Fair?", NULL);             /* a date is nobody */
    says(fair, "When does the Nofano Fair not begin?", NULL);    /* that is not said */
    says(fair, "What was moved in the years of the war?", NULL); /* a bad guess is not said */
    says(fair, "Who moved the harbour?", "Clara Rebe");          /* one of two */
    says(fair, "Tell me what gets() does.", NULL);
    says(fair, "What does print(wooden) show?", NULL); /* one word of two */
}

static const char mill[] = "The Harbour Mill, restored by Lena Brandt in 1911, grinds barley for forty bakeries. Its "
                           "wheel is 9 metres wide, and "
                           "the miller sells honey in summer.\n";

static void several_facts_in_a_sentence(void **state)
{
    (void)state;
    says(mill, "Who restored the Harbour Mill?", "Lena Brandt");
    says(mill, "When was the Harbour Mill restored?", "1911");
    says(mill, "How many bakeries does the Harbour Mill grind for?", "forty");
    says(mill, "How wide is the wheel of the Harbour Mill?", "9 metres");
    says(mill, "Who restored the Mill Harbour?", NULL); /* another name */
    says(mill, "Who restored the Harbour Tower?", NULL);
}

/* Nothing is read beyond the ends, whatever the bytes are. */
static void any_bytes(void **state)
{
    char document[301], question[81];
    uint32_t x = 7;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        static const char from[] = "Ab: 1-\n.,' \xc3\xa4\xe2\x80\x94\xff who is\t=*";
        struct recall_said said;
        struct err e = { 0 };

        for (size_t i = 0; i < sizeof document - 1; i++)
            document[i] = from[(x = x * 1664525 + 1013904223, x >> 16) % (sizeof from - 1)];
        for (size_t i = 0; i < sizeof question - 1; i++)
            question[i] = from[(x = x * 1664525 + 1013904223, x >> 16) % (sizeof from - 1)];
        char *at = malloc(300), *asked = malloc(80);

        memcpy(at, document, 300);
        memcpy(asked, question, 80);
        if (recall_answer(&said, (struct str){ at, 300 }, tokens, (struct str){ asked, 80 }, &e))
            fail_msg("%s", e.msg);
        assert_true(said.text.n == 0 || (said.text.p >= at && said.text.p + said.text.n <= at + 300));
        free(at);
        free(asked);
    }
    says("", "What is a vumpf?", NULL);
    says(lines, "", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_lines),    cmocka_unit_test(words_of_paragraphs),
        cmocka_unit_test(kinds_of_answers), cmocka_unit_test(several_facts_in_a_sentence),
        cmocka_unit_test(any_bytes),
    };
    struct gguf *g = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, "tests/golden/models/qwen35moe-k.iq3_s.gguf", &e) || text_open(&tokens, g, &e)) {
        fprintf(stderr, "document_test: %s\n", e.msg);
        return 1;
    }
    gguf_close(g);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    text_close(tokens);
    return failed;
}
