# SPDX-License-Identifier: Apache-2.0
"""Reference definitions of the four methods, in numpy float64.

Used only to make golden data (make_smollm2.py) and to check what the project
prints. Every function follows shared/methods.md, section by section.
"""

import numpy as np


def softmax(x, axis=-1):
    x = x - x.max(axis=axis, keepdims=True)
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


# --- 1. SimLayerKV ---------------------------------------------------------
def proximal_mass(rows, row_positions, initial, recent):
    """rows[..., r, n]: attention of query row_positions[r]; causal, sums to 1.
    Mass on keys [0, initial) plus keys (i - recent, i], counted once."""
    n = rows.shape[-1]
    keys = np.arange(n)
    i = np.asarray(row_positions)[:, None]
    mask = (keys < initial) | ((keys > i - recent) & (keys <= i))
    return (rows * mask).sum(-1)


# --- 2. PoD ----------------------------------------------------------------
def entropy(p):
    p = np.asarray(p, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(p > 0, p * np.log2(p), 0.0)
    return -t.sum(-1)


def js_divergence(p, q):
    p = np.asarray(p, np.float64)
    q = np.asarray(q, np.float64)
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


def js_matrix(rows):
    """rows[L, H, q, n] -> mean JS divergence over q, [H, L, L]."""
    L, H, q, n = rows.shape
    out = np.zeros((H, L, L))
    ent = entropy(rows)  # L,H,q
    for h in range(H):
        for a in range(L):
            for b in range(a + 1, L):
                m = entropy((rows[a, h].astype(np.float64) + rows[b, h]) / 2)
                d = (m - (ent[a, h] + ent[b, h]) / 2).mean()
                out[h, a, b] = out[h, b, a] = d
    return out


def greedy_blocks(sim, delta):
    """sim[L, L] -> list of blocks (Algorithm 1 of PoD)."""
    blocks = [[0]]
    for layer in range(1, sim.shape[0]):
        if all(sim[layer, m] >= delta for m in blocks[-1]):
            blocks[-1].append(layer)
        else:
            blocks.append([layer])
    return blocks


# --- 3. DynamicKV ----------------------------------------------------------
def window_scores(rows, kernel, pooling):
    """rows[L, H, ws, n] (the last ws rows) -> A[L, H, n - ws]."""
    ws = rows.shape[2]
    a = rows[..., : rows.shape[-1] - ws].astype(np.float64).mean(2)
    pad = kernel // 2
    n = a.shape[-1]
    out = np.empty_like(a)
    if pooling == "avg":
        p = np.pad(a, [(0, 0)] * 2 + [(pad, pad)])
        c = np.cumsum(np.pad(p, [(0, 0)] * 2 + [(1, 0)]), -1)
        out = (c[..., kernel:] - c[..., :-kernel])[..., :n] / kernel
    else:
        p = np.pad(a, [(0, 0)] * 2 + [(pad, pad)], constant_values=-np.inf)
        out = np.max(np.stack([p[..., k : k + n] for k in range(kernel)]), 0)
    return out


def dynamickv_budgets(A, wt, ws, r_max):
    """A[L, H, S] -> dict: counts, raw budgets (Algorithm 1) and exact budgets."""
    L, H, S = A.shape
    base = wt - ws
    k = min(base, S) * H * L
    order = np.argsort(-A.reshape(-1), kind="stable")[:k]
    counts = np.bincount(order // (H * S), minlength=L).astype(np.int64)
    bs = min(int(base * r_max), S)
    raw = bs * counts // counts.max()
    scaled = np.minimum(raw * (base * L) // raw.sum(), bs)
    return dict(counts=counts, bs=bs, raw=raw, scaled=scaled, exact=capped_shares(counts, base * L, bs))


def capped_shares(counts, total, cap):
    """Shares of the total in proportion to the counts, none above the cap: what that cuts off goes to the others. Whole
    numbers by largest remainder, ties to the lower layer."""
    order = np.argsort(-counts, kind="stable")
    out = np.full(len(counts), cap)
    for at_cap in range(len(counts)):  # the fewest layers, of the largest counts, that must be at the cap
        rest = np.sort(order[at_cap:])
        weights = counts[rest] if counts[rest].sum() > 0 else np.ones_like(rest)
        left = total - cap * at_cap
        if (left * weights > cap * weights.sum()).any():
            continue
        out[rest], rem = left * weights // weights.sum(), left * weights % weights.sum()
        out[rest[np.argsort(-rem, kind="stable")[: left - out[rest].sum()]]] += 1
        break
    return out


# --- 4. LagKV --------------------------------------------------------------
def lag_partition_scores(x, sink, lag, variant="lag"):
    """x[H, n, d] -> scores[H, P, lag] of every partition that has a reference."""
    H, n, d = x.shape
    parts = (n - sink) // lag
    v = x[:, sink : sink + parts * lag].reshape(H, parts, lag, d).astype(np.float64)
    tgt = v[:, :-1]
    ref = v[:, 1:] if variant == "lag" else tgt
    lo = ref.min(2, keepdims=True)
    hi = ref.max(2, keepdims=True)
    span = hi - lo
    s = np.where(span > 0, (tgt - lo) / np.where(span > 0, span, 1), 0.0).std(
        -1, ddof=1
    )  # a channel without range gives 0
    return softmax(s, -1)


def lag_kept(K, V, sink, lag, ratio, variant="lag"):
    """Indices kept per head after one whole-prompt compression, ascending."""
    H, n, d = K.shape
    if n < sink + 2 * lag:
        return np.tile(np.arange(n), (H, 1))
    if variant == "l2":
        parts = (n - sink) // lag
        s = -np.linalg.norm(K[:, sink : sink + parts * lag].astype(np.float64), axis=-1).reshape(H, parts, lag)[:, :-1]
    else:
        s = lag_partition_scores(K, sink, lag, variant) + lag_partition_scores(V, sink, lag, variant)
    keep = int(ratio * lag)
    P = s.shape[1]
    out = []
    for h in range(H):
        idx = list(range(sink))
        for p in range(P):
            top = np.sort(np.argsort(-s[h, p], kind="stable")[:keep])
            idx += list(sink + p * lag + top)
        idx += list(range(sink + P * lag, n))
        out.append(idx)
    return np.array(out)


def lag_retained(n, sink, lag, ratio):
    """Length after compression: one whole-prompt pass (Eq. 10 with int(rL))."""
    if n < sink + 2 * lag:
        return n
    parts = (n - sink) // lag
    return sink + int(ratio * lag) * (parts - 1) + lag + (n - sink) % lag
