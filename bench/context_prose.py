# SPDX-License-Identifier: Apache-2.0
"""Kinds of paragraphs for context_sets.py whose sentences tell several facts at once.

Of a kind: how a thing is called, its facts (a value, and six questions with {n} for the name), and whole paragraphs, in which
{a}, {b} and so on are the values of the facts. A paragraph does not tell all of them. theatre, farm, expedition and observatory
are to tune with, railway and botanist to report on.
"""
GIVEN = "Edith Tomas Ruth Oskar Lena Viktor Agnes Milo Selma Bruno Ida Anton Nora Emil Vera Karl Judith Ivan Marta Felipe".split()
FAMILY = "Haldane Brix Torvik Lindqvist Okafor Marsh Delacroix Penrose Vogel Sarkany Whitlow Amsel Kirwan Tolland Ferrante Grieve".split()
TOWNS = "Hallowby Grenmark Castrel Dunmere Velden Ostby Larkhaven Tresco Bramfeld Skarnes Ellinge Porthwen".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()


def person(r):
    return r.choice(GIVEN) + " " + r.choice(FAMILY)


def one(words):
    return lambda r: r.choice(words.split("|"))


def number(low, high, unit=""):
    return lambda r: "%d%s" % (r.randint(low, high), unit)


def town(r):
    return r.choice(TOWNS)


def date(r):
    return "%d %s %d" % (r.randint(1, 28), r.choice(MONTHS), r.randint(1780, 1985))


def place(prefix):
    return lambda r: prefix + r.choice(FAMILY)


KINDS = {
    "theatre": (lambda r: "the %s Theatre" % r.choice(["Apollo", "Crown", "Lyric", "Comet", "Garrison",
        "Merchant"]) + " of " + r.choice(FAMILY) + r.choice(["ton", "wick", "dale", "by"]), {
        "a": (number(1790, 1960), ["When did {n} open?", "In what year was {n} opened?",
            "What year did {n} open its doors?",
              "Tell me when {n} opened.", "{n}: opened in which year?", "Do you know since when {n} has been open?"]),
        "b": (person, ["Who designed {n}?", "Who was the architect of {n}?", "By whom was {n} designed?",
            "Name the architect of {n}.",
              "{n}: who designed the building?", "I would like to know who drew the plans of {n}."]),
        "c": (number(180, 2400), ["How many seats does {n} have?", "How many people can sit in {n}?",
            "What is the number of seats in {n}?",
              "Tell me how many seats {n} has.", "{n}: how many seats?",
                  "Could you tell me how many seats there are in {n}?"]),
        "d": (one("comic operas|puppet plays|Greek tragedies|silent films|ballets"), ["What is mostly shown at {n}?",
            "What can one see at {n}?",
              "What kind of pieces does {n} show?", "Tell me what {n} shows.", "{n}: what is shown there?",
                  "Do you know what {n} mostly shows?"]),
        "e": (one("a painted ceiling|a revolving stage|a glass dome|a steam organ|a marble staircase"),
            ["What is {n} famous for?",
              "For what is {n} known?", "What made {n} famous?", "Tell me what {n} is famous for.",
                  "{n}: famous for what?", "Do you know why people have heard of {n}, what is it known for?"]),
        "f": (lambda r: "on " + r.choice(DAYS) + "s", ["When is {n} closed?", "On which day is {n} closed?",
            "What day of the week is {n} closed?",
              "Tell me on which day {n} is closed.", "{n}: closed on which day?",
                  "Do you know when {n} stays closed?"]),
        "g": (person, ["Who manages {n} today?", "Who is the manager of {n}?", "By whom is {n} managed?",
            "Name the manager of {n}.",
              "{n}: who runs it now?", "Do you know who is in charge of {n}?"]),
    }, [
        "Opened in {a} and designed by {b}, {n} has {c} seats. It is famous for {e}, and it mostly shows {d}.",
        "{N} was designed by {b}, who had never built a theatre before. With its "
        "{c} seats it is the largest in the county. Since {g} became its manager, it has shown {d} above all; it is closed {f}.",
        "In {a} {n} opened its doors with a comedy. Visitors come for {e}, for which it is famous. Today it is managed by {g} and is closed {f}.",
        "For a long time nobody wanted to pay for {n}. When {b} had drawn the plans, the money was found, and it opened in {a}. There are {c} seats.",
        "{N} is known for {e}. The manager, {g}, likes {d}, so these are mostly what it shows.",
    ]),
    "farm": (lambda r: r.choice(FAMILY) + " " + r.choice(["Farm", "Grange", "Orchard",
        "Meadows"]) + " in " + r.choice(TOWNS), {
        "a": (person, ["Who owns {n}?", "Who is the owner of {n}?", "To whom does {n} belong?",
            "Tell me who owns {n}.", "{n}: who is the owner?",
              "Do you know whose property {n} is, who owns it?"]),
        "b": (number(12, 900, " hectares"), ["How large is {n}?", "What is the size of {n}?", "How big is {n}?",
            "Tell me how large {n} is.",
              "{n}: how many hectares?", "Do you know how much land {n} has?"]),
        "c": (one("sheep|geese|dairy cows|goats|donkeys|turkeys"), ["What animals are kept at {n}?",
            "Which animals does {n} keep?",
              "What kind of animals live at {n}?", "Tell me which animals are kept at {n}.", "{n}: which animals?",
                  "Do you know what animals {n} has?"]),
        "d": (one("rye|hops|sugar beets|lavender|mustard|flax"), ["What is grown at {n}?", "What does {n} grow?",
            "Which crop is grown at {n}?",
              "Tell me what is grown at {n}.", "{n}: what grows there?", "Do you know which crop {n} grows?"]),
        "e": (number(1650, 1940), ["When was the barn of {n} built?", "In which year was the barn at {n} built?",
            "How old is the barn of {n}, when was it built?",
              "Tell me when the barn of {n} was built.", "{n}: barn built when?",
                  "Do you know the year in which the barn at {n} was built?"]),
        "f": (lambda r: "every " + r.choice(DAYS), ["How often is there a market at {n}?",
            "When is the market at {n} held?", "On which day is the market at {n}?",
              "Tell me when there is a market at {n}.", "{n}: when is the market?",
                  "Do you know when {n} holds its market?"]),
        "g": (lambda r: "behind the " + r.choice(["stables", "chapel", "pond", "cider press", "dairy"]),
            ["Where can guests sleep at {n}?", "Where is the guest house of {n}?",
              "Where do guests of {n} sleep?", "Tell me where the guest house of {n} is.",
                  "{n}: where is the guest house?", "Do you know where at {n} the guest house stands?"]),
    }, [
        "{N} belongs to {a}. On its {b} grow {d}, while the {c} are kept in a barn that was built in {e}.",
        "With {b} of land, {n} is rather small. Its owner {a} keeps {c} and grows {d}, and a market is held there {f}.",
        "The barn of {n} was built in {e} after a fire. The guest house stands {g}. The farm keeps {c}, mostly for their wool or milk.",
        "{N} is owned by {a}, whose family came from the south. There is a market {f}; guests sleep in a small house {g}.",
        "At {n}, {d} are grown. It has {b}, and its oldest barn was built in {e}.",
    ]),
    "expedition": (lambda r: "the %s Expedition" % r.choice(FAMILY) + " to the " + r.choice(["Narr", "Keld", "Issa",
        "Tomba", "Vanik", "Orrin"]) + " " + r.choice(["Glacier", "Delta", "Plateau", "Desert", "Strait"]), {
        "a": (person, ["Who led {n}?", "Who was the leader of {n}?", "Under whose command was {n}?",
            "Name the person who led {n}.",
              "{n}: who was in command?", "Can you say who led {n}?"]),
        "b": (date, ["When did {n} set out?", "On what date did {n} leave?", "What day did {n} set out on?",
            "Give me the date on which {n} started.",
              "{n}: set out when?", "Can you say when {n} began?"]),
        "c": (number(5, 120), ["How many members did {n} have?", "How many people took part in {n}?",
            "What was the number of members of {n}?",
              "Say how many people were on {n}.", "{n}: how many members?",
                  "Can you say how many men and women joined {n}?"]),
        "d": (town, ["Where did {n} set out from?", "From which town did {n} leave?",
            "Where did {n} begin its journey?", "Name the town where {n} started.",
              "{n}: started from where?", "Can you say from where {n} set out?"]),
        "e": (one("a frozen lake|the ruins of a temple|a hot spring|three unknown moths|a seam of coal|an abandoned fort"),
            ["What did {n} discover?", "What was discovered by {n}?",
              "What did {n} find?", "Say what {n} discovered.", "{n}: discovered what?",
                  "Can you say what {n} found there?"]),
        "f": (one("a lack of water|a storm|an outbreak of fever|a broken rudder|a mutiny"), ["Why did {n} turn back?",
            "What forced {n} to return?", "What was the reason why {n} turned back?",
              "Say why {n} turned back.", "{n}: why did it return?", "Can you say what made {n} turn back?"]),
        "g": (number(3, 30, " months"), ["How long did {n} last?", "How long was {n} away?",
            "What was the length of {n}?", "Say how long {n} took.",
              "{n}: how long did it last?", "Can you say how many months {n} took?"]),
        "h": (one("camels|sledges|mules|canoes|yaks"), ["What did {n} use for transport?",
            "How did {n} carry its supplies?", "What were the supplies of {n} carried by?",
              "Say what carried the supplies of {n}.", "{n}: what carried the supplies?",
                  "Can you say how the supplies of {n} were moved?"]),
    }, [
        "{N}, led by {a}, set out from {d} on {b}. Its {c} members discovered {e} before {f} forced them to turn back.",
        "Under the command of {a}, {n} lasted {g}. Supplies were carried by {h}, since there were no roads. In the end {f} made it turn back.",
        "On {b} {n} left {d}, cheered by a small crowd. It had {c} members and came back after {g}. Nobody had expected it to find {e}.",
        "{c} people took part in {n}. They travelled for {g} with {h}, which carried all supplies. Their most important discovery was {e}.",
        "Little is known of {n} today. Its leader, {a}, kept a diary, according to which it started on {b} and turned back because of {f}.",
        "{N} found {e}. It had set out from {d} with {h} to carry its supplies; {a} led it.",
    ]),
    "observatory": (lambda r: r.choice(FAMILY) + " Observatory on " + r.choice(["Mount ",
        "Cape "]) + r.choice(FAMILY), {
        "a": (number(1830, 1990), ["When was {n} built?", "In which year was {n} completed?",
            "What year was {n} finished?", "Name the year in which {n} was built.",
              "{n}: built when?", "Could you find out when {n} was built?"]),
        "b": (person, ["Who directs {n}?", "Who is the director of {n}?", "By whom is {n} directed?",
            "Give the name of the director of {n}.",
              "{n}: who is its director?", "Could you find out who heads {n}?"]),
        "c": (number(30, 600, " centimetres"), ["What is the diameter of the main mirror of {n}?",
            "How wide is the main mirror of {n}?", "How large is the mirror at {n}?",
              "Give the diameter of the mirror of {n}.", "{n}: diameter of the main mirror?",
                  "Could you find out how big the main mirror of {n} is?"]),
        "d": (one("comets|double stars|sunspots|meteors|distant galaxies|the rings of Saturn"),
            ["What do astronomers at {n} study?", "What is studied at {n}?", "What does {n} observe?",
              "Say what is observed at {n}.", "{n}: what does it study?",
                  "Could you find out what they study at {n}?"]),
        "e": (one("a retired banker|the ministry of mines|a tobacco company|the university|a shipping line"),
            ["Who paid for {n}?", "Who gave the money for {n}?", "By whom was {n} paid for?",
              "Say who paid for {n}.", "{n}: who paid for it?", "Could you find out who funded {n}?"]),
        "f": (number(400, 4200, " metres"), ["At what altitude is {n}?", "How high above the sea is {n}?",
            "What is the height of {n} above the sea?", "Give the altitude of {n}.",
              "{n}: at what height?", "Could you find out at what altitude {n} lies?"]),
        "g": (lambda r: "on the first " + r.choice(DAYS) + " of the month", ["When can visitors see {n}?",
            "When is {n} open to visitors?", "On what day may one visit {n}?",
              "Say when {n} is open to visitors.", "{n}: open to visitors when?",
                  "Could you find out when {n} can be visited?"]),
        "h": (place("Lake "), ["Which lake is {n} near?", "What lake lies below {n}?", "Near which lake is {n}?",
            "Name the lake near {n}.", "{n}: near which lake?",
              "Could you find out what lake can be seen from {n}?"]),
    }, [
        "{N} was built in {a} with money from {e}. Its main mirror has a diameter of {c}, which made it the largest of its time. Astronomers there study {d}.",
        "High above {h}, at an altitude of {f}, stands {n}. It is directed by {b} and is open to visitors {g}.",
        "The director of {n}, {b}, came from abroad. Under her the study of {d} was begun, and a mirror of {c} was bought.",
        "{E} paid for {n}, which was completed in {a}. At {f} above the sea the air is dry enough to observe {d}.",
        "{N} lies near {h}. Built in {a}, it was closed during the war; since then visitors have been welcome {g}.",
        "Since {b} became its director, {n} has mostly observed {d}. The main mirror is {c} wide, and the place is so high, at {f}, that it snows in June.",
    ]),
    "railway": (lambda r: "the %s Line" % (r.choice(FAMILY) + r.choice(["", " and " + r.choice(TOWNS)])), {
        "a": (number(1825, 1930), ["In which year was {n} opened?", "When did trains begin to run on {n}?",
            "When was {n} opened?", "Please tell me when {n} opened.",
              "{n}: year of opening?", "I wonder when {n} was opened."]),
        "b": (number(8, 340, " kilometres"), ["How long is {n}?", "What is the length of {n}?",
            "How many kilometres long is {n}?", "Please tell me how long {n} is.",
              "{n}: length?", "I wonder how long {n} is."]),
        "c": (lambda r: "%s and %s" % tuple(r.sample(TOWNS, 2)), ["Which towns does {n} connect?",
            "What does {n} connect?", "What two towns are connected by {n}?",
              "Please tell me which towns {n} connects.", "{n}: connects which towns?",
                  "I wonder what towns {n} connects."]),
        "d": (person, ["Who was the engineer of {n}?", "Which engineer built {n}?", "By whom was {n} built?",
            "Please tell me who built {n}.", "{n}: who built it?",
              "I wonder which engineer built {n}."]),
        "e": (number(2, 60), ["How many tunnels does {n} have?", "How many tunnels are there on {n}?",
            "What is the number of tunnels on {n}?",
              "Please tell me how many tunnels {n} has.", "{n}: number of tunnels?",
                  "I wonder how many tunnels {n} has."]),
        "f": (one("oranges|gravel|cattle|fish|timber|cement"), ["What did the first trains of {n} carry?",
            "What goods were carried on {n} at first?", "What was {n} first used to carry?",
              "Please tell me what {n} carried at first.", "{n}: what was carried at first?",
                  "I wonder what the first trains on {n} carried."]),
        "g": (one("floods|a landslide|a strike|falling profits|the war"), ["Why was {n} closed?",
            "What led to the closing of {n}?", "What was the reason for closing {n}?",
              "Please tell me why {n} was closed.", "{n}: why was it closed?", "I wonder why {n} closed."]),
        "h": (one("bright green|dark red|pale yellow|white|blue"), ["What colour are the trains of {n}?",
            "Which colour do trains on {n} have?", "What is the colour of the trains on {n}?",
              "Please tell me the colour of the trains of {n}.", "{n}: colour of its trains?",
                  "I wonder what colour the trains of {n} are."]),
    }, [
        "{N} connects {c} and is {b} long. It was built by the engineer {d}, who needed {e} tunnels to cross the hills.",
        "Opened in {a}, {n} first carried {f}. Passengers were allowed two years later. Its trains, painted {h}, became a common sight.",
        "With {e} tunnels on only {b}, {n} was expensive to build. It was opened in {a} and later had to close because of {g}.",
        "The first trains on {n} carried {f} between {c}. The engineer, {d}, travelled on the first one himself.",
        "Few people remember {n}, which was closed because of {g}. Between {a}, when it was opened, and that day its trains were always {h}.",
        "{D} built {n} in four years. It runs for {b}, has {e} tunnels and connects {c}.",
    ]),
    "botanist": (lambda r: r.choice("Alma Casper Dora Edgar Flora Gustav Hilda Ivo Klara Ludwig Minna Otto".split()) +
        " " + r.choice("Ahlgren Bonnet Cray Dufresne Eklund Farrow Gant Hollis Jurek Kessler Lowe Mott".split()), {
        "a": (date, ["When was {n} born?", "On what date was {n} born?", "What is the date of birth of {n}?",
            "I need to know when {n} was born.", "{n}: born when?",
              "Have you got the birthday of {n}?"]),
        "b": (town, ["Where was {n} born?", "In which town was {n} born?", "What is the birthplace of {n}?",
            "I need to know where {n} was born.", "{n}: born where?",
              "Have you got the birthplace of {n}?"]),
        "c": (one("mosses|orchids|ferns|alpine flowers|water plants|mushrooms"), ["What did {n} study?",
            "What plants did {n} study?", "What was studied by {n}?",
              "I need to know what {n} studied.", "{n}: studied what?", "Have you got what {n} was studying?"]),
        "d": (number(20, 900), ["How many drawings did {n} leave?", "How many drawings are there by {n}?",
            "What is the number of drawings that {n} left?",
              "I need to know how many drawings {n} left.", "{n}: how many drawings?",
                  "Have you got the number of drawings by {n}?"]),
        "e": (person, ["Who taught {n}?", "Who was the teacher of {n}?", "By whom was {n} taught?",
            "I need to know who taught {n}.", "{n}: taught by whom?",
              "Have you got the name of the teacher of {n}?"]),
        "f": (one("the silver medal of the academy|a garden of his own|a chair at the university|a ticket to Java|a microscope"),
            ["What did {n} receive for the work?", "What was {n} given as a prize?", "What prize did {n} receive?",
              "I need to know what prize {n} received.", "{n}: which prize?", "Have you got what {n} won?"]),
        "g": (lambda r: str(r.randint(1840, 1990)), ["When did {n} die?", "In which year did {n} die?",
            "What year did {n} die in?", "I need to know when {n} died.", "{n}: died when?",
              "Have you got the year of death of {n}?"]),
        "h": (place("a cottage near "), ["Where did {n} live at last?", "Where did {n} spend the last years?",
            "In what place did {n} live in old age?", "I need to know where {n} lived in the end.",
              "{n}: lived where in old age?", "Have you got where {n} lived last?"]),
    }, [
        "{n}, born in {b} on {a}, studied {c}. The prize for this work was {f}.",
        "A pupil of {e}, {n} left {d} drawings, most of them of {c}, and died in {g}.",
        "{n} was born on {a} and was taught by {e} at home. The last years were spent in {h}, where the {d} drawings were made that we have.",
        "{n} was born in {b}. After long travels {n} studied {c} and received {f}, which caused some envy. Death came in {g}.",
        "Taught by {e}, {n} began to study {c} as a child. {d} drawings have been kept in {b}, the place of birth.",
        "In old age {n} lived in {h}. Those who came to see the {d} drawings, until {g}, when {n} died, were given tea.",
    ]),
}


def forms(value):
    """A value with and without its preposition, where one may be left out."""
    return {value} | ({value[3:]} if value.startswith("on ") else set())


def prose(kind, n, r):
    make, facts, texts = KINDS[kind]
    notes, items, none, seen = [], [], [], set()
    while len(items) < n or len(none) < n // 3:
        name = make(r)
        if name in seen:
            continue
        seen.add(name)
        text, value = r.choice(texts), {k: f[0](r) for k, f in facts.items()}
        capital = {k.upper(): v[0].upper() + v[1:] for k, v in value.items()}
        notes.append(text.format(n=name, N=name[0].upper() + name[1:], **value, **{k: v for k,
            v in capital.items() if k != "N"}))
        for k, f in facts.items():
            if "{%s}" % k in text or "{%s}" % k.upper() in text:
                items.append((f[1], name, forms(value[k])))
            else:
                none.append((f[1], name))
    r.shuffle(items)
    r.shuffle(none)
    foreign = []
    while len(foreign) < n // 3:
        name = make(r)
        if name not in seen:
            foreign.append((r.choice(list(facts.values()))[1], name))
    ask = lambda row, i: (row[0][i % 6].format(n=row[1]), *row[2:])
    return ("\n\n".join(notes), [ask(x, i) for i, x in enumerate(items[:n])], [ask(x, i) for i,
        x in enumerate(none[:n // 3])],
            [ask(x, i) for i, x in enumerate(foreign)])
