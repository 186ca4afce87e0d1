#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""retrieval.py QUESTIONS HALF INDEX [STATIC [WEIGHTS TOKENIZER]] - how often the right text is among the first 1, 3 and 10 of an index.

INDEX has the product's manuals (chimere-engram-build index -o INDEX man), STATIC has them with --embedder, WEIGHTS and
TOKENIZER are files of PyPI's wordllama, which is measured, too. QUESTIONS is share/eval/retrieval.tsv, HALF tune or
test. A text is right if it is of the question's manual and the item of the question begins a paragraph of it.
Prints a table by mode, beside FTS5 of SQLite with its Porter stemmer over the same texts; 95 % intervals by Wilson.
"""
import json
import math
import os
import re
import sqlite3
import subprocess
import sys

TOP = (1, 3, 10)


PROGRAM = os.environ.get('BIN', 'bin') + '/chimere-engram-build'


def texts_of(index):
    """[(file, heading, text)]"""
    lines = subprocess.run([PROGRAM, 'dump', index], capture_output=True, check=True).stdout.splitlines()
    return [(os.path.basename(o['file']), o.get('heading', ''), o['text']) for o in map(json.loads, lines)]


def ours(index, questions, how):
    out = subprocess.run([PROGRAM, 'query', '-k', '10', *how, index], input='\n'.join(questions), text=True,
                         capture_output=True, check=True).stdout
    found = [[] for _ in questions]
    for line in out.splitlines():
        hit = json.loads(line)
        found[hit['query']].append(hit['id'])
    return found


def fts5(texts, questions):
    db = sqlite3.connect(':memory:')
    db.execute("create virtual table t using fts5(heading, body, tokenize = 'porter unicode61')")
    db.executemany('insert into t(rowid, heading, body) values (?, ?, ?)',
                   [(i, h, t) for i, (_, h, t) in enumerate(texts)])
    found = []
    for q in questions:
        words = re.findall(r'\w+', q)
        found.append([r[0] for r in db.execute('select rowid from t where t match ? order by rank limit 10',
                                               (' OR '.join('"%s"' % w for w in words),))])
    return found


def wordllama(texts, questions, weights, tokenizer):
    import numpy
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference
    model = WordLlamaInference(load_file(weights)['embedding.weight'], Tokenizer.from_file(tokenizer))
    a = model.embed([h + '\n' + t for _, h, t in texts], norm=True)
    return [[int(i) for i in numpy.argsort(-(a @ v), kind='stable')[:10]] for v in model.embed(questions, norm=True)]


def fused(a, b):
    out = []
    for x, y in zip(a, b):
        score = {}
        for hits in (x, y):
            for rank, hit in enumerate(hits):
                score[hit] = score.get(hit, 0) + 1 / (10 + rank)
        out.append(sorted(score, key=lambda h: (-score[h], h))[:10])
    return out


def wilson(k, n, z=1.96):
    p, d = k / n, 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
    mid = (p + z * z / (2 * n)) / d
    return '%d to %d' % (round(100 * (mid - half)), round(100 * (mid + half)))


def main():
    path, half, index, *others = sys.argv[1:]
    rows = [line.rstrip('\n').split('\t') for line in open(path)]
    rows = [r for r in rows if r[0] == half]
    texts = texts_of(index)
    right = []
    for _, _, _, manual, item in rows:
        begins = re.compile(r'(^|\n)(-\w, )?' + re.escape(item) + r'(?![-\w])')
        right.append({i for i, (f, _, t) in enumerate(texts) if f == manual and begins.search(t)})
        assert right[-1], (manual, item)
    questions = [r[2] for r in rows]
    modes = [('`--bm25`', ours(index, questions, ['--bm25'])),
             ('`--bm25 --exact`', ours(index, questions, ['--bm25', '--exact'])),
             ("the model's vectors", ours(index, questions, ['--vectors', 'only'])),
             ('both, the default', ours(index, questions, []))]
    if others:
        modes += [('static vectors, `--embedder`', ours(others[0], questions, ['--vectors', 'only'])),
                  ('both', ours(others[0], questions, []))]
    porter = fts5(texts, questions)
    modes += [('SQLite FTS5, porter', porter), ('`--bm25` and FTS5, by rank', fused(modes[0][1], porter))]
    if others[1:]:
        modes.append(("PyPI's wordllama", wordllama(texts, questions, *others[1:])))
    print('%d texts, %d questions of half "%s"\n' % (len(texts), len(rows), half))
    print('| mode | named, at 1 / 3 / 10 | at 3, 95 % | paraphrased, at 1 / 3 / 10 | at 3, 95 % |')
    print('|---|---|---|---|---|')
    for name, found in modes:
        cells = []
        for kind in ('named', 'other'):
            mine = [i for i, r in enumerate(rows) if r[1] == kind]
            got = [sum(bool(right[i] & set(found[i][:k])) for i in mine) for k in TOP]
            cells += ['%d / %d / %d of %d' % (*got, len(mine)), wilson(got[1], len(mine))]
        print('| %s | %s |' % (name, ' | '.join(cells)))


if __name__ == '__main__':
    main()
