#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes notes that a model has not seen, and questions on them.

    context_sets.py KIND N SEED DIR

Writes DIR/notes.txt, DIR/items.jsonl with N questions that the notes answer, DIR/none.jsonl with questions on the same
things that they do not answer, and DIR/foreign.jsonl with questions on things that they do not have (N // 3 of each).
Every question has one of six phrasings, in turn. KIND is one of
  lines "KEY: TEXT":  people glossary | packages devices
  paragraphs of 2 to 4 sentences with several facts:  village craftsman ship company mountain machine herb inn |
      instrument animal bridge festival | school lighthouse
  the same, with several facts in a sentence:  theatre farm expedition observatory | railway botanist
Those before the last bar are to choose with. Those behind it decided nothing.
"""
import argparse, json, os, random
import context_prose as dense
import learn_sets as sets

LINES = {  # six phrasings; {K}: in capitals, {w}: hyphens are spaces, {s}: plural
    "people": ["Who is {k}?", "Tell me who {k} is.", "who is {l}?", "{k}: who is that?", "What do you know about {K}?",
     "Can you tell me who {k} is?"],
    "glossary": ["What is a {k}?", "Explain the word {k}.", "Define {K}.", "What are {s}?", "What does {k} mean?", "Do you know what a {k} is?"],
    "packages": ["What is the Debian package {k}?", "Describe {k}.", "What is in the package {w}?", "{K}: what is it for?",
     "What does {k} do?", "I need to know what {k}'s purpose is."],
    "devices": ["How is {k} configured?", "Give me the settings of {l}.", "What are the parameters of device {w}?", "{k} settings?",
     "Which settings does {k} have?", "Can you tell me {k}'s settings?"],
}
PLACE = "Orvale Tembury Lissmoor Karvik Brandel Ustria Pelham Norrick Davenhall Sorley Quindle Mardon".split()
FIRST = "Anna Boris Clara Dmitri Elsa Felix Greta Hugo Ines Jonas Kira Leon Mira Nils Olga Pavel".split()
COLOURS = "red green blue yellow white black grey brown orange purple".split()
MONTHS = "January February March April May June July August September October November December".split()


def year(r):
    return str(r.randint(1620, 1990))


def person(r):
    return r.choice(FIRST) + " " + sets.name(r, 2)


def pick(words):
    return lambda r: r.choice(words.split("|"))


# Of a kind: how a thing is called, how the text calls it later, and what may be said of it: a value, sentences, and
# six questions ({n} the name, {v} the value, {p} the later name). A thing has three to five of them.
PROSE = {
    "village": (lambda r: sets.name(r, 3), "The village", [
        (year, ["{n} was founded in {v}.", "People first settled in {n} in {v}."],
         ["When was {n} founded?", "In which year was {n} founded?", "What year was the founding of {n}?", "Tell me when {n} was founded.",
          "{n}: founded when?", "Since when does {n} exist, when was it founded?"]),
        (person, ["Its mayor is {v}.", "The mayor, {v}, has held office for years."],
         ["Who is the mayor of {n}?", "Tell me the name of the mayor of {n}.", "What is the name of {n}'s mayor?", "who is mayor in {n}?",
          "{n}: who is the mayor?", "Do you know who the mayor of {n} is?"]),
        (lambda r: str(r.randint(120, 9800)), ["{v} people live there.", "It has {v} inhabitants."],
         ["How many people live in {n}?", "How many inhabitants does {n} have?", "What is the number of inhabitants of {n}?",
          "Tell me how many people live in {n}.", "{n}: how many inhabitants?", "Do you know how many people there are in {n}?"]),
        (pick("copper wire|blue glass|winter apples|clay pots|sea salt|church bells"), ["The village is known for {v}.", "It is famous for its {v}."],
         ["What is {n} known for?", "What is {n} famous for?", "Tell me what {n} is known for.", "For what is {n} famous?",
          "{n}: known for what?", "Do you know what made {n} famous?"]),
        (pick("the river Ulm|the river Tarn|the river Esk|the river Vire"), ["It lies on {v}.", "{n} stands on the banks of {v}."],
         ["On which river does {n} lie?", "Which river is {n} on?", "What river does {n} stand on?", "Tell me which river {n} lies on.",
          "{n}: which river?", "Do you know the river on which {n} lies?"]),
    ]),
    "craftsman": (person, "He", [
        (pick("baker|weaver|glazier|tailor|chemist|violinist|carpenter"), ["{n} is a {v} by trade.", "{n} works as a {v}."],
         ["What is {n}'s profession?", "What does {n} work as?", "What is the trade of {n}?", "Tell me the job of {n}.",
          "{n}: what profession?", "Do you know what job {n} has?"]),
        (lambda r: r.choice(PLACE), ["{p} lives in {v} with two cats.", "{p} lives in {v}."],
         ["Where does {n} live?", "In which town does {n} live?", "Where is {n} living?", "Tell me where {n} lives.", "{n}: lives where?",
          "Do you know where {n} lives?"]),
        (year, ["{p} was born in {v}.", "Born in {v}, {p} is the youngest of three."],
         ["When was {n} born?", "In what year was {n} born?", "What is {n}'s year of birth?", "Tell me when {n} was born.",
          "{n}: born when?", "Do you know the year when {n} was born?"]),
        (pick("old maps|rare stamps|brass buttons|glass beads|sea shells"), ["{p} collects {v}.", "{p} has collected {v} since school."],
         ["What does {n} collect?", "What things does {n} collect?", "What is collected by {n}?", "Tell me what {n} collects.",
          "{n} collects what?", "Do you know what {n} collects?"]),
        (person, ["{p} is married to {v}.", "{p} married {v} after the war."],
         ["Who is {n} married to?", "Whom did {n} marry?", "What is the name of {n}'s wife?", "Tell me who {n} married.",
          "{n}: married to whom?", "Do you know who is married to {n}?"]),
    ]),
    "ship": (lambda r: "the " + sets.name(r, 3), "She", [
        (person, ["{n} was built by {v}.", "{v} built {n} with his sons."],
         ["Who built {n}?", "By whom was {n} built?", "Who was the builder of {n}?", "Tell me who built {n}.", "{n}: built by whom?",
          "Do you know who built {n}?"]),
        (lambda r: "%d metres" % r.randint(9, 80), ["{p} is {v} long.", "{p} has a length of {v}."],
         ["How long is {n}?", "What is the length of {n}?", "What length does {n} have?", "Tell me how long {n} is.", "{n}: how long?",
          "Do you know the length of {n}?"]),
        (lambda r: r.choice(COLOURS), ["Her hull is painted {v}.", "{p} has a {v} hull."],
         ["What colour is the hull of {n}?", "Which colour does the hull of {n} have?", "What is the colour of {n}'s hull?",
          "Tell me the colour of the hull of {n}.", "{n}: colour of the hull?", "Do you know what color {n}'s hull is?"]),
        (pick("salt|timber|wool|coal|wine|grain"), ["{p} carries {v} along the coast.", "{p} mostly carries {v}."],
         ["What does {n} carry?", "What is carried by {n}?", "Which goods does {n} carry?", "Tell me what {n} carries.",
          "{n} carries what?", "Do you know what {n} carries?"]),
        (lambda r: "%s %s" % (r.randint(1, 28), r.choice(MONTHS)), ["{p} leaves port on {v}.", "On {v} {p} leaves the port."],
         ["When does {n} leave port?", "On which day does {n} leave port?", "What day will {n} leave the port?",
          "Tell me when {n} leaves.", "{n}: leaves when?", "Do you know when {n} is leaving port?"]),
    ]),
    "company": (lambda r: "the firm " + sets.name(r, 3), "It", [
        (person, ["{v} started {n} in a garage.", "{n} was set up by {v}."],
         ["Who started {n}?", "Who set up {n}?", "By whom was {n} started?", "Tell me who started {n}.", "{n}: started by whom?",
          "Do you know who set up {n}?"]),
        (lambda r: str(r.randint(4, 900)), ["{p} employs {v} workers.", "Today {v} workers are employed there."],
         ["How many workers does {n} employ?", "What is the number of workers at {n}?", "How many workers are employed at {n}?",
          "Tell me how many workers {n} has.", "{n}: how many workers?", "Do you know how many workers {n} employs?"]),
        (pick("door handles|paper bags|tram bells|garden chairs|water meters"), ["{p} makes {v}.", "Its main product is {v}."],
         ["What does {n} make?", "What is made by {n}?", "What product does {n} make?", "Tell me what {n} makes.", "{n} makes what?",
          "Do you know what {n} produces?"]),
        (lambda r: r.choice(PLACE), ["Its office is in {v}.", "{p} moved its office to {v}."],
         ["Where is the office of {n}?", "In which city is the office of {n}?", "Where is {n}'s office?",
          "Tell me where the office of {n} is.", "{n}: where is the office?", "Do you know where {n} has its office?"]),
        (lambda r: "%d euros" % r.randint(11, 99), ["A share of {n} costs {v}.", "One share is worth {v}."],
         ["How much is a share of {n}?", "What does a share of {n} cost?", "What is a share of {n} worth?",
          "Tell me how much a share of {n} costs.", "{n}: price of a share?", "Do you know what a share of {n} is worth?"]),
    ]),
    "mountain": (lambda r: "Mount " + sets.name(r, 2), "It", [
        (lambda r: "%d metres" % r.randint(900, 5000), ["{n} is {v} high.", "It rises to {v}."],
         ["How high is {n}?", "What is the height of {n}?", "What height does {n} have?", "Tell me how high {n} is.", "{n}: height?",
          "Do you know how tall {n} is?"]),
        (person, ["The first to climb it was {v}.", "{v} climbed {n} first."],
         ["Who first climbed {n}?", "Who climbed {n} first?", "By whom was {n} first climbed?", "Tell me who climbed {n} first.",
          "{n}: who climbed it first?", "Do you know who was the first to climb {n}?"]),
        (year, ["A storm destroyed the hut in {v}.", "The hut was destroyed in {v}."],
         ["When was the hut on {n} destroyed?", "In which year was the hut on {n} destroyed?", "When did the storm destroy the hut on {n}?",
          "Tell me when the hut on {n} was destroyed.", "hut on {n}: destroyed when?",
          "Do you know in which year the hut on {n} was destroyed?"]),
        (pick("marmots|wild goats|eagles|gentians|blueberries"), ["Its slopes are full of {v}.", "Hikers come to see the {v}."],
         ["What are the slopes of {n} full of?", "What do hikers come to see on {n}?", "What can hikers see on {n}?",
          "Tell me what the slopes of {n} are full of.", "{n}: what do hikers see there?", "Do you know what hikers see on {n}?"]),
        (pick("marble|silver ore|slate|rock salt|chalk"), ["Miners dig for {v} on its north side.", "{v} is mined there."],
         ["What is mined on {n}?", "What do miners dig for on {n}?", "What do the miners of {n} dig for?",
          "Tell me what is mined on {n}.", "{n}: what do miners dig for?", "Do you know what is mined at {n}?"]),
    ]),
    "machine": (lambda r: "the %s-%d" % (sets.name(r, 2), r.randint(10, 99)), "It", [
        (lambda r: str(r.randint(40, 2000)), ["{n} needs {v} watts.", "It draws {v} watts."],
         ["How many watts does {n} need?", "How many watts does {n} draw?", "What number of watts does {n} need?",
          "Tell me how many watts {n} draws.", "{n}: how many watts?", "Do you know how many watts {n} needs?"]),
        (pick("labels|bottle caps|envelopes|walnut shells|ribbons"), ["It is used to cut {v}.", "{n} cuts {v}."],
         ["What does {n} cut?", "What is {n} used to cut?", "What is cut by {n}?", "Tell me what {n} cuts.", "{n} cuts what?",
          "Do you know what {n} is used for?"]),
        (pick("every Monday|every two weeks|once a month|after each shift|twice a year"), ["Clean it {v}.", "It has to be cleaned {v}."],
         ["How often must {n} be cleaned?", "When must {n} be cleaned?", "When do I clean {n}?", "Tell me how often to clean {n}.",
          "{n}: cleaned how often?", "Do you know how often {n} has to be cleaned?"]),
        (pick("behind the red door|next to the lift|in hall 4|under the gallery|in the basement"), ["It stands {v}.", "You find it {v}."],
         ["Where is {n}?", "Where does {n} stand?", "Where can {n} be found?", "Tell me where {n} stands.", "{n}: where is it?",
          "Do you know where to find {n}?"]),
        (person, ["Call {v} if it stops.", "If it breaks, {v} repairs it."],
         ["Who repairs {n}?", "Whom do I call if {n} stops?", "Who can repair {n}?", "Tell me whom to call when {n} stops.",
          "{n}: who repairs it?", "Do you know who repairs {n}?"]),
    ]),
    "herb": (lambda r: sets.name(r, 3).lower(), "It", [
        (pick("headaches|sore throats|hiccups|sunburn|insomnia"), ["The {n} helps against {v}.", "People take it against {v}."],
         ["What does the {n} help against?", "Against what does {n} help?", "What do people take {n} against?",
          "Tell me what {n} helps against.", "{n}: helps against what?", "Do you know what a {n} helps against?"]),
        (pick("along old walls|in wet meadows|on sandy hills|near beech trees|under hedges"), ["It grows {v}.", "The {n} grows {v}."],
         ["Where does {n} grow?", "Where does the {n} grow?", "In what places does {n} grow?", "Tell me where {n} grows.",
          "{n}: grows where?", "Do you know where the {n} grows?"]),
        (lambda r: r.choice(MONTHS), ["It flowers in {v}.", "In {v} the {n} is in flower."],
         ["When does the {n} flower?", "In which month does {n} flower?", "When is the {n} in flower?", "Tell me when {n} flowers.",
          "{n}: flowers when?", "Do you know when {n} flowers?"]),
        (person, ["It was named by {v}.", "{v} gave the {n} its name."],
         ["Who named the {n}?", "By whom was the {n} named?", "Who gave the {n} its name?", "Tell me who named {n}.",
          "{n}: named by whom?", "Do you know who named the {n}?"]),
        (lambda r: r.choice(COLOURS), ["Its leaves are {v}.", "It has {v} leaves."],
         ["What colour are the leaves of {n}?", "Which colour do {n} leaves have?", "What is the colour of its leaves, those of {n}?",
          "Tell me the colour of the leaves of the {n}.", "{n}: colour of the leaves?", "Do you know the color of {n} leaves?"]),
    ]),
    "inn": (lambda r: "the inn " + sets.name(r, 2), "It", [
        (person, ["{v} owns {n}.", "{n} belongs to {v}."],
         ["Who owns {n}?", "To whom does {n} belong?", "Who is the owner of {n}?", "Tell me who owns {n}.", "{n}: who is the owner?",
          "Do you know whose {n} is, who owns it?"]),
        (pick("beside the old mill|behind the castle|near the harbour|under the north gate|opposite the market"), ["It stands {v}.",
         "You find it {v}."],
         ["Where is {n}?", "Where does {n} stand?", "Where can I find {n}?", "Tell me where {n} is.", "{n}: where is it?",
          "Do you know where {n} stands?"]),
        (lambda r: "%d crowns" % r.randint(5, 90), ["A room costs {v} a night.", "The price of a room is {v}."],
         ["How much does a room cost at {n}?", "What is the price of a room at {n}?", "What does a room at {n} cost?",
          "Tell me the price of a room in {n}.", "{n}: price of a room?", "Do you know how much a room in {n} costs?"]),
        (pick("smoked eel|barley soup|plum dumplings|roast goose|nettle pie"), ["The kitchen is known for {v}.",
         "Guests come for the {v}, for which the kitchen is known."],
         ["What is the kitchen of {n} known for?", "For what is the kitchen of {n} known?", "What dish is the kitchen of {n} known for?",
          "Tell me what the kitchen at {n} is known for.", "{n}: what is its kitchen known for?",
          "Do you know what the kitchen of {n} is known for?"]),
        (lambda r: str(r.randint(3, 40)), ["There are {v} rooms.", "It has {v} rooms and a stable."],
         ["How many rooms does {n} have?", "How many rooms are there in {n}?", "What is the number of rooms in {n}?",
          "Tell me how many rooms {n} has.", "{n}: how many rooms?", "Do you know how many rooms {n} has?"]),
    ]),
    "instrument": (lambda r: sets.name(r, 3).lower(), "It", [
        (person, ["The {n} was invented by {v}.", "{v} invented the {n} as a student."],
         ["Who invented the {n}?", "By whom was the {n} invented?", "Who is the inventor of the {n}?", "Tell me who invented the {n}.",
          "{n}: who invented it?", "Do you know the inventor of the {n}?"]),
        (pick("brass|walnut|cherry wood|bone|horn|tin"), ["It is made of {v}.", "Its body is made from {v}."],
         ["What is the {n} made of?", "What material is the {n} made of?", "Of what is the {n} made?", "Tell me what the {n} is made of.",
          "{n}: made of what?", "Do you know what a {n} is made from?"]),
        (lambda r: str(r.randint(3, 48)), ["It has {v} strings.", "The {n} has {v} strings, tuned in fifths."],
         ["How many strings does the {n} have?", "How many strings are on a {n}?", "What is the number of strings of the {n}?",
          "Tell me how many strings a {n} has.", "{n}: how many strings?", "Do you know how many strings the {n} has?"]),
        (pick("weddings|funerals|harvest feasts|church services|hunts"), ["People play it at {v}.", "It is played at {v}."],
         ["When is the {n} played, at what events?", "At what events is the {n} played?", "Where do people play the {n}?",
          "Tell me at which events the {n} is played.", "{n}: played at what?", "Do you know at what occasions the {n} is played?"]),
        (lambda r: r.choice(PLACE), ["The oldest one is kept in {v}.", "The oldest {n} is in a museum in {v}."],
         ["Where is the oldest {n}?", "Where is the oldest {n} kept?", "In which town is the oldest {n} kept?",
          "Tell me where the oldest {n} is.", "oldest {n}: where is it?", "Do you know where the oldest {n} can be seen?"]),
    ]),
    "animal": (lambda r: sets.name(r, 3).lower(), "It", [
        (pick("snails|beetles|water lilies|pine cones|small crabs|roots"), ["The {n} eats {v}.", "It feeds on {v}."],
         ["What does the {n} eat?", "What do {n}s eat?", "What is the food of the {n}?", "Tell me what the {n} eats.",
          "{n}: what does it eat?", "Do you know what a {n} feeds on?"]),
        (pick("in hollow trees|under flat stones|in salt marshes|near hot springs|on steep cliffs"), ["It lives {v}.",
         "The {n} lives {v} and is hard to find."],
         ["Where does the {n} live?", "Where do {n}s live?", "In what place does the {n} live?", "Tell me where the {n} lives.",
          "{n}: where does it live?", "Do you know where a {n} lives?"]),
        (lambda r: "%d grams" % r.randint(20, 900), ["An adult weighs {v}.", "It weighs about {v}."],
         ["How heavy is the {n}?", "What is the weight of a {n}?", "How much does the {n} weigh?", "Tell me how heavy a {n} is.",
          "{n}: weight?", "Do you know how much a {n} weighs?"]),
        (year, ["It was first described in {v}.", "{q} described it in {v}."],
         ["When was the {n} first described?", "In which year was the {n} described?", "What year was the {n} first described in?",
          "Tell me when the {n} was described.", "{n}: described when?", "Do you know when the {n} was first described?"]),
        (lambda r: "%s" % r.choice(COLOURS), ["Its eggs are {v}.", "It lays {v} eggs."],
         ["What colour are the eggs of the {n}?", "Which colour do the {n}'s eggs have?", "What is the colour of {n} eggs?",
          "Tell me the colour of the eggs of the {n}.", "{n}: colour of the eggs?", "Do you know the color of a {n}'s eggs?"]),
    ]),
    "bridge": (lambda r: "the " + sets.name(r, 3) + " Bridge", "It", [
        (person, ["It was designed by {v}.", "{v} designed {n}."],
         ["Who designed {n}?", "By whom was {n} designed?", "Who is the designer of {n}?", "Tell me who designed {n}.",
          "{n}: designed by whom?", "Do you know who designed {n}?"]),
        (lambda r: "%d metres" % r.randint(20, 900), ["It is {v} long.", "Its length is {v}."],
         ["How long is {n}?", "What is the length of {n}?", "What length does {n} have?", "Tell me the length of {n}.", "{n}: length?",
          "Do you know how long {n} is?"]),
        (lambda r: str(r.randint(2, 30)), ["It has {v} arches.", "It rests on {v} stone arches."],
         ["How many arches does {n} have?", "On how many arches does {n} rest?", "What is the number of arches of {n}?",
          "Tell me how many arches {n} has.", "{n}: how many arches?", "Do you know how many arches there are under {n}?"]),
        (lambda r: r.choice(PLACE) + " and " + r.choice(PLACE), ["It connects {v}.", "{n} connects {v}."],
         ["What does {n} connect?", "Which towns does {n} connect?", "What towns are connected by {n}?", "Tell me what {n} connects.",
          "{n} connects what?", "Do you know which towns {n} connects?"]),
        (year, ["Since {v} cars may not use it.", "It was closed to cars in {v}."],
         ["When was {n} closed to cars?", "In which year was {n} closed to cars?", "Since when may cars not use {n}?",
          "Tell me when {n} was closed to cars.", "{n}: closed to cars when?", "Do you know when {n} was closed to cars?"]),
    ]),
    "festival": (lambda r: "the %s Fair" % sets.name(r, 3), "It", [
        (lambda r: "%d %s" % (r.randint(1, 28), r.choice(MONTHS)), ["It opens on {v}.", "{n} begins on {v} each year."],
         ["When does {n} begin?", "On which day does {n} open?", "What is the date when {n} begins?", "Tell me when {n} opens.",
          "{n}: begins when?", "Do you know on what day {n} starts?"]),
        (lambda r: r.choice(PLACE), ["It is held in {v}.", "{n} takes place in {v}."],
         ["Where is {n} held?", "Where does {n} take place?", "In which town is {n} held?", "Tell me where {n} is held.",
          "{n}: held where?", "Do you know in which town {n} takes place?"]),
        (lambda r: "%d crowns" % r.randint(2, 80), ["A ticket costs {v}.", "Tickets cost {v}, and children pay nothing."],
         ["How much is a ticket for {n}?", "What does a ticket for {n} cost?", "What is the price of a ticket for {n}?",
          "Tell me how much a ticket for {n} costs.", "{n}: price of a ticket?", "Do you know what tickets for {n} cost?"]),
        (pick("an honorary cheese|a golden spoon|a silver whistle|a live goose|a wooden crown"), ["The winner gets {v}.", "The prize is {v}."],
         ["What does the winner of {n} get?", "What is the prize at {n}?", "What prize does the winner of {n} get?",
          "Tell me what the winner gets at {n}.", "{n}: what does the winner get?", "Do you know what the prize of {n} is?"]),
        (person, ["It is opened by {v}.", "{v} opens it with a song."],
         ["Who opens {n}?", "By whom is {n} opened?", "Who is going to open {n}?", "Tell me who opens {n}.", "{n}: opened by whom?",
          "Do you know who opens {n}?"]),
    ]),
    "school": (lambda r: sets.name(r, 3) + " School", "The school", [
        (person, ["{v} runs the school.", "Its head is {v}, who once taught drawing.", "{v} has been its head for years."],
         ["Who runs {n}?", "Who is the head of {n}?", "What is the name of the head of {n}?", "Tell me who the head of {n} is.",
          "{n}: who is its head?", "Do you know by whom {n} is run?"]),
        (lambda r: str(r.randint(40, 1900)), ["{v} pupils attend it.", "It has {v} pupils.", "About {v} pupils come here every day."],
         ["How many pupils does {n} have?", "How many pupils attend {n}?", "What is the number of pupils at {n}?",
          "Tell me how many pupils {n} has.", "{n}: how many pupils?", "Do you know how many pupils go to {n}?"]),
        (lambda r: r.choice(COLOURS), ["All pupils wear {v} coats.", "The coats of the pupils are {v}."],
         ["What colour are the coats at {n}?", "Which colour do the coats of the pupils of {n} have?", "What is the colour of the coats at {n}?",
          "Tell me which colour the coats of {n} have.", "{n}: colour of the coats?", "Do you know what color coats the pupils of {n} wear?"]),
        (pick("fencing|bookbinding|beekeeping|astronomy|Latin|glassblowing"), ["Every pupil has to learn {v}.",
         "They teach {v}, which is taught from the first year."],
         ["What does every pupil of {n} have to learn?", "What must pupils at {n} learn?", "Which subject is taught at {n} from the first year?",
          "Tell me what all pupils at {n} learn.", "{n}: what do pupils learn there?", "Do you know what is taught at {n} from the first year?"]),
        (year, ["It burnt down in {v} and was soon rebuilt.", "A fire destroyed the old building in {v}."],
         ["When did {n} burn down?", "In which year did {n} burn down?", "In what year was the old building of {n} destroyed?",
          "Tell me when {n} burnt down.", "{n}: when was the fire?", "Do you know the year of the fire at {n}?"]),
    ]),
    "lighthouse": (lambda r: "the %s Light" % sets.name(r, 2), "It", [
        (lambda r: "%d metres" % r.randint(11, 70), ["Its tower is {v} tall.", "The tower reaches a height of {v}.", "{n} has a tower of {v}."],
         ["How tall is the tower of {n}?", "What is the height of the tower of {n}?", "How high is the tower of {n}?",
          "Tell me how tall the tower of {n} is.", "{n}: height of the tower?", "Do you know how high {n}'s tower is?"]),
        (person, ["{v} tends the lamp.", "The lamp is looked after by {v}.", "Its keeper, {v}, lives alone."],
         ["Who looks after the lamp of {n}?", "Who is the keeper of {n}?", "By whom is the lamp of {n} tended?", "Tell me who keeps {n}.",
          "{n}: who is the keeper?", "Do you know the name of the keeper of {n}?"]),
        (lambda r: "every %d seconds" % r.randint(3, 40), ["The lamp flashes {v}.", "You can see a flash {v}."],
         ["How often does {n} flash?", "How often does the lamp of {n} flash?", "At what interval does {n} flash?", "Tell me how often {n} flashes.",
          "{n}: how often does it flash?", "Do you know how often the lamp at {n} flashes?"]),
        (pick("whale oil|acetylene|paraffin|rapeseed oil|gas from a tank"), ["The lamp burns {v}.", "For fuel {v} is used."],
         ["What does the lamp of {n} burn?", "What fuel does {n} use?", "What is used as fuel at {n}?", "Tell me what the lamp of {n} burns.",
          "{n}: which fuel?", "Do you know what fuel the lamp of {n} burns?"]),
        (lambda r: sets.name(r, 2) + " Island", ["It stands on {v}, where nobody else lives.", "{n} was built on {v}."],
         ["On which island is {n}?", "Where is {n}?", "Where was {n} built?", "Tell me on which island {n} stands.", "{n}: which island?",
          "Do you know where {n} stands?"]),
    ]),
}


def forms(value):
    """A value with and without its "in", and of "the river Ulm" the name. Articles and capitals do not count."""
    bare = value.split(" ", 1)[1] if value.startswith(("in ", "on ")) else value
    return {value, bare} | ({value[4:], value[10:]} if value.startswith("the river ") else set())


def prose(kind, n, r):
    make, later, facts = PROSE[kind]
    notes, items, none, seen = [], [], [], set()
    while len(items) < n or len(none) < n // 3:
        name = make(r)
        if name in seen:
            continue
        seen.add(name)
        said = sorted(r.sample(range(len(facts)), r.randint(3, 4)))
        text = []
        for i in said:
            value = facts[i][0](r)
            sentence = r.choice(facts[i][1]).format(n=name, v=value, p=later, q=person(r))
            text.append(sentence)
            items.append((facts[i][2], name, forms(value)))
        if not any(name in s for s in text[:1]):  # the first sentence names what the paragraph is about
            text.insert(0, r.choice(["This is about {n}.", "A word on {n}.", "Some notes on {n}."]).format(n=name))
        notes.append(" ".join(s[0].upper() + s[1:] for s in text))
        for i in set(range(len(facts))) - set(said):
            none.append((facts[i][2], name))
    r.shuffle(items)
    r.shuffle(none)
    foreign = []
    while len(foreign) < n // 3:
        name = make(r)
        if name not in seen:
            foreign.append((r.choice(facts)[2], name))
    ask = lambda row, i: (row[0][i % 6].format(n=row[1]), *row[2:])
    return ("\n\n".join(notes), [ask(x, i) for i, x in enumerate(items[:n])], [ask(x, i) for i, x in enumerate(none[:n // 3])],
            [ask(x, i) for i, x in enumerate(foreign)])


def lines(kind, n, r):
    seen = set()
    facts, others = sets.some(sets.FACTS[kind][0], r, n, seen), sets.some(sets.FACTS[kind][0], r, n // 3, seen)
    asked = lambda k, i: LINES[kind][i % 6].format(k=k, K=k.upper(), l=k.lower(), w=k.replace("-", " "), s=k + "s")
    return ("\n".join("%s: %s" % f for f in facts), [(asked(k, i), {v}) for i, (k, v) in enumerate(facts)], [],
            [(asked(k, i),) for i, (k, v) in enumerate(others)])


def main():
    a = argparse.ArgumentParser()
    a.add_argument("kind", choices=[*LINES, *PROSE, *dense.KINDS])
    a.add_argument("n", type=int)
    a.add_argument("seed", type=int)
    a.add_argument("dir")
    a = a.parse_args()
    made = (lines if a.kind in LINES else prose if a.kind in PROSE else dense.prose)(a.kind, a.n, random.Random("%s %d" % (a.kind, a.seed)))
    os.makedirs(a.dir, exist_ok=True)
    with open(os.path.join(a.dir, "notes.txt"), "w") as f:
        f.write(made[0] + "\n")
    for name, rows in zip(("items", "none", "foreign"), made[1:]):
        with open(os.path.join(a.dir, name + ".jsonl"), "w") as f:
            for i, (question, *answers) in enumerate(rows):
                o = {"id": "%s-%s-%04d" % (a.kind, name, i), "domain": a.kind, "messages": [{"role": "user", "content": question}],
                     "enable_thinking": False, "answers": sorted(answers[0]) if answers else [], "check": "exact"}
                f.write(json.dumps(o) + "\n")


main()
