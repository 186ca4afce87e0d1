/* SPDX-License-Identifier: Apache-2.0 */
/* english.c - stems of words, words that mean the same in a question, and what words are for in a sentence.
 * room: recall */
#include <string.h>

#include "base/io.h"
#include "recall/document.h"

/* ---- stems ---- */

/* Words of a row are one word. The first forms are stems, so that a row covers what is derived from them. */
static const char *const same[] = {
    " find found discover discovery ",
    " known famous renowned ",
    " inhabitant people population resident ",
    " child children ",
    " establish settle founded foundation start begin began begun beginning set ",
    " begin began begun beginning start commence open opening ",
    " held hold happen occur place venue event occasion ",
    " prize award reward win won winner ",
    " job position office role post ",
    " town city village ",
    " connect link join ",
    " end finish close stop ",
    " attack fight fought battle war ",
    " rule ruled ruler king queen emperor govern government ",
    " area territory region ",
    " law legislation act ",
    " kill killed murder ",
    " help support assist ",
    " cause reason result ",
    " create creation form formed formation ",
    " increase rise rose risen grow grew growth ",
    " decrease fall fell fallen decline drop ",
    " change alter replace replaced ",
    " meet met meeting gather ",
    " arrive reach come came ",
    " send sent ship deliver delivery ",
    " study research learn learnt ",
    " doctor physician ",
    " car vehicle automobile ",
    " boat ship vessel ",
    " road street ",
    " money fund budget ",
    " company firm business ",
    " part component ",
    " kind type sort ",
    " error fault failure fail ",
    " allow permit let ",
    " contain include consist comprise ",
    " purpose aim goal ",
    " say said state tell told ",
    " see seen saw visible view ",
    " visit visitor guest ",
    " responsible charge ",
    " employ employee worker staff ",
    " live lived reside home house ",
    " work job profession occupation trade ",
    " cost price pay paid fee charge ",
    " close shut end ended finish ",
    " open opening ",
    " own owner belong possess ",
    " write wrote written author writer ",
    " invent inventor invention ",
    " bear born birth birthday birthplace ",
    " die dead death ",
    " marry wife husband spouse ",
    " high tall height ",
    " deep depth ",
    " long length last lasted ",
    " wide width broad ",
    " heavy weigh weight ",
    " fast speed quick ",
    " old age aged ",
    " repair fix mend ",
    " keep kept store stored hold held ",
    " make made produce product production manufacture ",
    " build built construct construction builder architect ",
    " sell sold sale ",
    " buy bought purchase ",
    " bring brought ",
    " teach taught teacher ",
    " paint painter painting ",
    " colour color ",
    " need require requirement ",
    " guard watch protect ",
    " phone telephone ",
    " call named name title ",
    " lead led leader leads run ran head chief manage manager director direct ",
    " win won winner ",
    " draw drew drawn ",
    " take took taken ",
    " give gave given ",
    " go went gone ",
    " know knew known ",
    " choose chose chosen ",
    " speak spoke spoken ",
    " wear wore worn ",
    " grow grew grown ",
    " break broke broken ",
    " lose lost ",
    " lie lay lies lain situate locate location stand stood ",
    " fly flew ",
    " drive drove driven driver ",
    " sing sang sung ",
    " eat ate eaten food diet feed fed ",
    " drink drank ",
    " show shown ",
    " leave left ",
    " arrive arrival ",
    " depart departure ",
    " use used ",
    " big large size ",
};

static bool ends_in(const char *w, size_t n, const char *tail)
{
    const size_t k = strlen(tail);

    return n >= k && memcmp(w + n - k, tail, k) == 0;
}

/* Whether a list with blanks around its words has this one. */
static bool has_word(const char *list, const char *w, size_t n)
{
    for (const char *at = list; (at = strchr(at, ' ')) != NULL && *++at != '\0';)
        if (strncmp(at, w, n) == 0 && at[n] == ' ')
            return true;
    return false;
}

/* Takes one ending off. */
static size_t strip_ending(const char *w, size_t n, char *y)
{
    *y = 0;
    if (n > 4 && ends_in(w, n, "ies")) {
        *y = 'y';
        return n - 2;
    }
    if (n > 4 && (ends_in(w, n, "sses") || ends_in(w, n, "xes") || ends_in(w, n, "ches") || ends_in(w, n, "shes")))
        return n - 2;
    if (n > 3 && w[n - 1] == 's' && !ends_in(w, n, "ss"))
        n--;
    if (n > 5 && ends_in(w, n, "ing"))
        n -= 3;
    else if (n > 4 && ends_in(w, n, "ied")) {
        *y = 'y';
        return n - 2;
    } else if (n > 4 && ends_in(w, n, "ed"))
        n -= 2;
    if (n > 3 && w[n - 1] == w[n - 2] && strchr("bdgmnprt", w[n - 1]) != NULL)
        n--;
    return n > 3 && w[n - 1] == 'e' ? n - 1 : n;
}

static size_t stem(const char *w, size_t n, char out[RECALL_STEM_BYTES])
{
    char y;

    n = n < RECALL_STEM_BYTES ? n : RECALL_STEM_BYTES;
    memcpy(out, w, n);
    n = strip_ending(out, n, &y);
    if (y != 0)
        out[n - 1] = y;
    return n;
}

uint64_t recall_stem_key(const char *word, size_t n)
{
    char mine[RECALL_STEM_BYTES];

    return io_hash(0, mine, stem(word, n, mine));
}

int recall_stem_keys(const char *word, size_t n, uint64_t key[RECALL_KEYS_MAX])
{
    const uint64_t own = key[0] = recall_stem_key(word, n);
    int k = 1;

    if (n > 5 && (ends_in(word, n, "er") || ends_in(word, n, "or"))) /* the designer is who designed it */
        key[k++] = recall_stem_key(word, n - 2);

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const int from = k;
        bool mine = false;

        for (const char *at = same[i] + 1; *at != '\0'; at = strchr(at, ' ') + 1) {
            const uint64_t other = recall_stem_key(at, (size_t)(strchr(at, ' ') - at));

            mine = mine || other == own;
            if (k < RECALL_KEYS_MAX)
                key[k++] = other;
        }
        k = mine ? k : from;
    }
    return k;
}

/* ---- what words are for ---- */

static const struct {
    enum recall_role role;
    const char *words;
} roles[] = {
    { RECALL_DET, " a an the " },
    { RECALL_AUX, " is are was were be been being has have had do does did can could will would must may might should "
                  "shall am s " },
    { RECALL_PREP,
      " in on at by from to with for of under near behind beside besides above below inside outside between opposite "
      "through across along into onto around since until till after before during without against within upon over "
      "past towards toward next about among beneath " },
    { RECALL_CONJ, " and or but nor so yet " },
    { RECALL_REL, " who whom whose which that where when while because although though as than if why how what " },
    { RECALL_PRON, " i you he she it we they me him her us them my your his its our their this these those there here "
                   "itself himself herself " },
    { RECALL_ADV, " also now today still only just then ever never not always often usually please exactly about "
                  "according notes note document text know tell give say me name information answer question find "
                  "show describe explain define state remind look any some thing anything something " },
};

enum recall_role recall_role_of(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (has_word(roles[i].words, word, n))
            return roles[i].role;
    return RECALL_CONTENT;
}

static const char *const kinds[] = {
    [RECALL_DATE] = " january february march april may june july august september october november december monday "
                    "tuesday wednesday thursday friday saturday sunday spring summer autumn winter noon midnight "
                    "morning evening afternoon night century ",
    [RECALL_NUMBER] = " one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
                      "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
                      "hundred thousand million dozen half ",
    [RECALL_COLOUR] = " red green blue yellow black white grey gray brown orange purple pink violet silver golden "
                      "gold crimson scarlet turquoise beige ivory amber cream indigo ",
    [RECALL_SHADE] = " dark light pale bright deep ",
    [RECALL_PLACE] = " in on at under near behind beside above below inside outside between opposite next from to "
                     "into across along around beneath over through past among ",
    [RECALL_BARE_PLACE] = " in on at from to into ",
    [RECALL_ASKS] = " who whom whose which where when why how what tell name give say state show find explain describe "
                    "define remind know wonder need want look ",
    [RECALL_TIMES] = " every each once twice daily weekly monthly yearly hourly always ",
    [RECALL_PERSON] = " actor architect artist author baker builder captain chief coach commander composer conductor "
                      "creator designer director discoverer doctor driver editor emperor engineer explorer father "
                      "founder governor guard guardian guide head headmaster heir husband inventor judge keeper king "
                      "landlord leader maker manager mayor member mother musician owner painter pilot player poet "
                      "president priest producer professor publisher queen ruler singer speaker student successor "
                      "teacher trainer wife winner writer ",
    [RECALL_STANDS] = " stand stands stood lie lies lay find found see seen locate located situated kept ",
    [RECALL_DENIES] = " not no never without neither nor none don doesn didn isn wasn aren cannot ",
    [RECALL_LIGHT] = " get gets got getting go goes going take takes took taken ",
    [RECALL_LINKS] = " is are was were be ",
};

bool recall_is_kind(enum recall_kind kind, const char *word, size_t n)
{
    return has_word(kinds[kind], word, n);
}

/* ---- what is asked for ---- */

static const struct {
    enum recall_wanted wanted;
    const char *words;
} nouns[] = {
    { RECALL_WHEN, " year date day month time birthday " },
    { RECALL_WHERE, " place town city village country location birthplace address hometown " },
    { RECALL_COLOURS, " colour color " },
    { RECALL_MEASURE, " height length width depth weight price cost age size speed distance fee wage salary "
                      "temperature duration rent " },
    { RECALL_NAMES, " name person " },
    { RECALL_MANY, " many number amount percentage percent proportion population " },
    { RECALL_NAMED, " agency airport album army award band bank battle book brand bridge church club college company "
                    "continent county court empire event film firm harbour island lake language league magazine "
                    "mountain movie museum newspaper ocean organization party port province railway region religion "
                    "river school sea ship show song state station street team title tribe university war " },
};

enum recall_wanted recall_wanted_by(const char *word, size_t n)
{
    for (size_t i = 0; i < sizeof nouns / sizeof *nouns; i++)
        if (has_word(nouns[i].words, word, n) || (n > 1 && word[n - 1] == 's' && has_word(nouns[i].words, word, n - 1)))
            return nouns[i].wanted;
    return RECALL_WHAT;
}
