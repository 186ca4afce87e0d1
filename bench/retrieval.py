#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""retrieval.py INDEX QUESTIONS HALF - how often the right text is among the first 1, 3 and 10 of an index.

INDEX has the product's manuals (chimere-engram-build index -o INDEX man), QUESTIONS is share/eval/retrieval.tsv, HALF is
tune or test. A text is right if it is of the question's manual and the item of the question begins a paragraph of it.
Prints a table by mode, beside FTS5 of SQLite with its Porter stemmer over the same texts; 95 % intervals by Wilson.
"""
import json
import math
import os
import re
import sqlite3
import struct
import subprocess
import sys

TOP = (1, 3, 10)


def texts_of(path):
    """[(file, heading, text)] of an index of version 2, see chimere-index(5)."""
    data = open(path, 'rb').read()
    word = struct.unpack('<64Q', data[:512])
    n, dims, text_bytes, n_words, word_bytes, postings, upper, graph = (word[i] for i in (4, 5, 7, 8, 9, 10, 11, 12))
    n_files, file_bytes, heading_bytes = word[15:18]
    row = 4 * ((dims + 15) // 16 * 16)
    sizes = [row, n * row, 8 * n, text_bytes, 4 * n, 8 * n_words, word_bytes, 8 * n_words, 8 * postings, graph * n,
             graph * 128 * n, graph * 64 * upper, 24 * n, 8 * n_files, 8 * n_files, file_bytes, 8 * n, heading_bytes]
    at, part = 512, []
    for size in sizes:
        part.append(data[at:at + size])
        at += (size + 63) // 64 * 64

    def cut(ends, raw):
        ends = struct.unpack('<%dQ' % (len(ends) // 8), ends)
        return [raw[a:b].decode() for a, b in zip((0,) + ends, ends)]
    files, texts, headings = cut(part[14], part[15]), cut(part[2], part[3]), cut(part[16], part[17])
    file_of = [struct.unpack('<QQII', part[12][24 * i:24 * i + 24])[2] for i in range(n)]
    return [(os.path.basename(files[file_of[i]]), headings[i], texts[i]) for i in range(n)]


def ours(index, questions, how):
    program = os.environ.get('BIN', 'bin') + '/chimere-engram-build'
    out = subprocess.run([program, 'query', '-k', '10', *how, index], input='\n'.join(questions), text=True,
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
    index, path, half = sys.argv[1:]
    rows = [line.rstrip('\n').split('\t') for line in open(path)]
    rows = [r for r in rows if r[0] == half]
    texts = texts_of(index)
    right = []
    for _, _, _, manual, item in rows:
        begins = re.compile(r'(^|\n)(-\w, )?' + re.escape(item) + r'(?![-\w])')
        right.append({i for i, (f, _, t) in enumerate(texts) if f == manual and begins.search(t)})
        assert right[-1], (manual, item)
    questions = [r[2] for r in rows]
    vectors = struct.unpack('<64Q', open(index, 'rb').read(512))[5] > 0
    modes = [('`--bm25 --exact`', ours(index, questions, ['--bm25', '--exact'])),
             ('`--bm25`', ours(index, questions, ['--bm25']))]
    if vectors:
        modes += [('the model\'s vectors', ours(index, questions, ['--vectors', 'only'])), ('`--hybrid`', ours(index, questions, ['--hybrid']))]
    porter = fts5(texts, questions)
    modes += [('SQLite FTS5, porter', porter), ('`--bm25` and FTS5, by rank', fused(modes[1][1], porter))]
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
