#!/usr/bin/env python3
"""reference.py - what zamba2 and hymba compute, in float64, one token after the other, straight from a file's matrices.

    python3 tests/golden/reference.py MODEL.gguf PROMPTS OUT          writes the vectors of MODEL (README.md here); needs numpy
    python3 tests/golden/reference.py MODEL.gguf PROMPTS OUT --check  compares those that are there

Matrices are F32 or BF16. The formulas are those of chimere-families(7)."""
import math
import os
import struct
import sys
import numpy as np

GREEDY, LAST, EPS_SSM = 32, 4, 1e-5


def read_gguf(path):
    data = open(path, 'rb').read()
    at = [8]

    def take(fmt):
        v = struct.unpack_from('<' + fmt, data, at[0])
        at[0] += struct.calcsize('<' + fmt)
        return v[0]

    def text():
        n = take('Q')
        at[0] += n
        return data[at[0] - n:at[0]].decode('utf-8', 'replace')

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            kind, n = take('I'), take('Q')
            return [value(kind) for _ in range(n)]
        return take({0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}[kind])

    n_tensors, n_kv = take('Q'), take('Q')
    kv = {}
    for _ in range(n_kv):
        key = text()
        kv[key] = value(take('I'))
    where = []
    for _ in range(n_tensors):
        name = text()
        shape = [take('Q') for _ in range(take('I'))]
        where.append((name, shape, take('I'), take('Q')))
    base = -(-at[0] // 32) * 32
    tensors = {}
    for name, shape, kind, offset in where:
        raw = np.frombuffer(data, {0: '<u4', 30: '<u2'}[kind], math.prod(shape), base + offset).astype(np.uint32)
        v = (raw << np.uint32(16 if kind == 30 else 0)).view(np.float32)
        tensors[name] = v.reshape(shape[::-1]).astype(np.float64)
    return kv, tensors


def norm(x, w, eps, groups=1):
    x = x.reshape(groups, -1)
    return (x / np.sqrt((x * x).mean(1, keepdims=True) + eps)).reshape(-1) * w.reshape(-1)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * np.array([(1 + math.erf(v / math.sqrt(2))) / 2 for v in x])


def rope(x, pos, n_rot, base):
    half = n_rot // 2
    angle = pos * base ** (-np.arange(half) / half) if half else np.zeros(0)
    a, b = x[:, :half].copy(), x[:, half:n_rot].copy()
    x[:, :half], x[:, half:n_rot] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return x


class Model:
    def __init__(self, path):
        self.kv, self.t = read_gguf(path)
        self.arch = self.kv['general.architecture']
        self.n_layer, self.eps = self.key('block_count'), self.key('attention.layer_norm_rms_epsilon')
        self.n_vocab = self.key('vocab_size')
        self.head = self.t.get('output.weight', self.t['token_embd.weight'][:self.n_vocab])
        self.clear()

    def key(self, name, default=None):
        return self.kv.get(self.arch + '.' + name, default)

    def clear(self):
        self.pos, self.k, self.v = 0, [[] for _ in range(self.n_layer)], [[] for _ in range(self.n_layer)]
        self.past, self.state = [None] * self.n_layer, [0.0] * self.n_layer
        for i in range(self.key('meta_token_count', 0)):
            self.step(self.n_vocab + i)

    def w(self, name):
        return self.t['blk.%d.%s' % (self.i, name)]

    def attention(self, x, scale, seen, of):
        n, n_rot, base = self.key('attention.head_count'), self.key('rope.dimension_count'), self.key('rope.freq_base', 1)
        q = rope((self.w('attn_q.weight') @ x).reshape(n, -1), self.pos, n_rot, base)
        if of == self.i:
            k = self.w('attn_k.weight') @ x
            k = rope(k.reshape(-1, q.shape[1]), self.pos, n_rot, base)
            self.k[of].append(k)
            self.v[of].append((self.w('attn_v.weight') @ x).reshape(len(k), -1))
        k, v = np.array(self.k[of])[seen], np.array(self.v[of])[seen]
        out = []
        for h in range(n):
            s = k[:, h * k.shape[1] // n] @ q[h] * scale
            p = np.exp(s - s.max())
            out.append(p / p.sum() @ v[:, h * k.shape[1] // n])
        return np.concatenate(out)

    def conv(self, x):
        w = self.w('ssm_conv1d.weight')
        past = self.past[self.i] if self.past[self.i] is not None else np.zeros((w.shape[1] - 1, w.shape[0]))
        rows = np.vstack([past, x])
        self.past[self.i] = rows[1:]
        return silu((rows.T * w).sum(1) + self.w('ssm_conv1d.bias'))

    def mamba2(self, x):
        D, N, h, G = (self.key('ssm.' + k) for k in ('inner_size', 'state_size', 'time_step_rank', 'group_count'))
        z, xbc, dt = np.split(self.w('ssm_in.weight') @ x, [D, 2 * D + 2 * G * N])
        xbc = self.conv(xbc)
        dt = np.logaddexp(0, dt + self.w('ssm_dt.bias'))
        v, b, c = xbc[:D].reshape(h, -1), xbc[D:D + G * N].reshape(G, N), xbc[D + G * N:].reshape(G, N)
        b, c = b.repeat(h // G, 0), c.repeat(h // G, 0)
        self.state[self.i] = (np.exp(dt * self.w('ssm_a').reshape(-1))[:, None, None] * self.state[self.i] +
                              (dt[:, None] * v)[:, :, None] * b[:, None, :])
        y = (self.state[self.i] @ c[:, :, None])[:, :, 0] + self.w('ssm_d').reshape(-1, 1) * v
        return self.w('ssm_out.weight') @ norm(y.reshape(-1) * silu(z), self.w('ssm_norm.weight'), EPS_SSM, G)

    def mamba1(self, x):
        D, N, R = (self.key('ssm.' + k) for k in ('inner_size', 'state_size', 'time_step_rank'))
        x, z = np.split(self.w('ssm_in.weight') @ x, [D])
        x = self.conv(x)
        dt, b, c = np.split(self.w('ssm_x.weight') @ x, [R, R + N])
        dt, b, c = (norm(v, self.w('ssm_%s_norm.weight' % k), self.eps) for v, k in ((dt, 'dt'), (b, 'b'), (c, 'c')))
        dt = np.logaddexp(0, self.w('ssm_dt.weight') @ dt + self.w('ssm_dt.bias'))
        self.state[self.i] = np.exp(dt[:, None] * self.w('ssm_a')) * self.state[self.i] + (dt * x)[:, None] * b
        return (self.state[self.i] @ c + self.w('ssm_d') * x) * silu(z)

    def zamba2(self, x, x0):
        t = 0
        if self.key('attention.head_count_kv')[self.i]:
            d = self.key('attention.key_length')
            u = norm(np.concatenate([x, x0]), self.w('post_attention_norm.weight'), self.eps)
            a = self.w('attn_output.weight') @ self.attention(u, (d / 2) ** -0.5, slice(None), self.i)
            gate, up = np.split(self.w('ffn_up.weight') @ norm(a, self.w('ffn_norm.weight'), self.eps), 2)
            t = self.w('ssm_mix.weight') @ (self.w('ffn_down.weight') @ (gelu(gate) * up))
        return x + self.mamba2(norm(x + t, self.w('attn_norm.weight'), self.eps))

    def hymba(self, x, _):
        h, j = norm(x, self.w('attn_norm.weight'), self.eps), np.arange(self.pos + 1)
        seen = j >= 0
        if self.key('attention.sliding_window_pattern')[self.i]:
            seen = (self.pos - j <= self.key('attention.sliding_window')) | (j < self.key('meta_token_count'))
        a = self.attention(h, self.key('attention.key_length') ** -0.5, seen, self.key('attention.kv_of')[self.i])
        y = norm(a, self.w('attn_output_norm.weight'), self.eps) + norm(self.mamba1(h), self.w('ssm_norm.weight'), self.eps)
        x = x + self.w('attn_output.weight') @ y / 2
        h = norm(x, self.w('ffn_norm.weight'), self.eps)
        return x + self.w('ffn_down.weight') @ (silu(self.w('ffn_gate.weight') @ h) * (self.w('ffn_up.weight') @ h))

    def step(self, token):
        """Logits; the residual stream in front of each layer, behind the last, and after the final norm."""
        x = x0 = self.t['token_embd.weight'][token]
        hidden = [x]
        for self.i in range(self.n_layer):
            x = getattr(self, self.arch)(x, x0)
            hidden.append(x)
        hidden.append(norm(x, self.t['output_norm.weight'], self.eps))
        self.pos += 1
        return self.head @ hidden[-1], hidden


def main(path, prompts, out, check=False):
    m = Model(path)
    to = os.path.join(out, os.path.basename(path)[:-len('.gguf')])
    v, lead = {}, math.inf
    for prompt in ('short', 'b', 'long', 'a'):
        m.clear()
        rows = [m.step(t) for t in np.fromfile(os.path.join(prompts, prompt + '.i32'), '<i4')]
        v[prompt + '.logits.f32'] = np.array([r[0] for r in rows][-LAST:])
        if prompt == 'short':
            v['short.hidden.f32'] = np.array([r[1] for r in rows]).swapaxes(0, 1)
    greedy, last = [], rows[-1][0]
    for _ in range(GREEDY):
        best = np.sort(last)[-2:]
        lead = min(lead, best[1] - best[0])
        greedy.append(int(last.argmax()))
        last = m.step(greedy[-1])[0]
    print('%s: deviation of logits %.2f, least lead of a greedy token %.3f, %d different' %
          (m.arch, v['short.logits.f32'].std(), lead, len(set(greedy))))
    if check:
        for name, ours in v.items():
            ref = np.fromfile(os.path.join(to, name), '<f4')
            rows = len(ref) // m.n_vocab if 'logits' in name else None
            ours = ours.reshape(-1) if rows is None else ours[-rows:].reshape(-1)
            print('%-18s %.1e' % (name, abs(ref[-len(ours):] - ours).max()))
        print('greedy tokens', 'equal' if greedy == list(np.fromfile(os.path.join(to, 'greedy.i32'), '<i4')) else 'differ')
        return
    os.makedirs(to, exist_ok=True)
    for name, x in v.items():  # 16 bits of mantissa
        bits = x.astype('<f4').view(np.uint32)
        ((bits + np.uint32(64)) & np.uint32(0xffffff80)).view('<f4').tofile(os.path.join(to, name))
    np.array(greedy, '<i4').tofile(os.path.join(to, 'greedy.i32'))


if __name__ == '__main__':
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:4], check='--check' in sys.argv[4:])
