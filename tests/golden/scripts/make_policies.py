# SPDX-License-Identifier: Apache-2.0
"""What SmolLM2 generates when its KV cache is cut by each policy, in plain torch.

The prompt is prefilled whole, with full attention; then the cache is cut; then
tokens are decoded greedily with their true positions. python make_policies.py MODEL_DIR OUT.json SEED LENGTH COUNT
"""

import json, random, sys, time
import numpy as np, torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
import reference as ref

FILL = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
HEAD = "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "


def passkey_prompt(tok, rng, length, digits, depth):
    key = "".join(rng.choice("0123456789") for _ in range(digits))
    needle = f"The pass key is {key}. Remember it. {key} is the pass key. "
    n = max(0, (length - 80) // len(tok(FILL)["input_ids"]))
    a = int(n * depth)
    return HEAD + FILL * a + needle + FILL * (n - a) + "\nWhat is the pass key? The pass key is", key


class Sim:
    def __init__(self, model):
        self.m = model
        c = model.config
        self.H, self.KV, self.D, self.L = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.num_hidden_layers

    @torch.no_grad()
    def prefill(self, ids, window):
        """Full attention. Returns the caches, the last `window` attention rows of every layer, and the next token."""
        m = self.m.model
        x = m.embed_tokens(torch.tensor([ids]))
        pos = torch.arange(len(ids))[None]
        cos, sin = m.rotary_emb(x, pos)
        self.cache, self.rows = [], []
        for layer in m.layers:
            a = layer.self_attn
            h = layer.input_layernorm(x)
            q, k, v = (p(h).view(1, len(ids), -1, self.D).transpose(1, 2) for p in (a.q_proj, a.k_proj, a.v_proj))
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
            g = self.H // self.KV
            kk, vv = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
            o = F.scaled_dot_product_attention(q, kk, vv, is_causal=True)
            w = q[:, :, -window:] @ kk.transpose(2, 3) / self.D**0.5
            mask = torch.arange(len(ids))[None] > torch.arange(len(ids) - window, len(ids))[:, None]
            self.rows.append(w.masked_fill(mask, -torch.inf).softmax(-1)[0].numpy())
            x = x + a.o_proj(o.transpose(1, 2).reshape(1, len(ids), -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            self.cache.append([k[0], v[0]])  # KV, n, D
        self.n = len(ids)
        return int(self.m.lm_head(m.norm(x[:, -1])).argmax())

    def cut(self, layer, kept):
        """kept[KV, m]: positions to keep."""
        i = torch.tensor(np.asarray(kept)).long()[..., None].expand(-1, -1, self.D)
        k, v = self.cache[layer]
        self.cache[layer] = [k.gather(1, i), v.gather(1, i)]

    @torch.no_grad()
    def step(self, token):
        m = self.m.model
        x = m.embed_tokens(torch.tensor([[token]]))
        cos, sin = m.rotary_emb(x, torch.tensor([[self.n]]))
        att = []
        for l, layer in enumerate(m.layers):
            a = layer.self_attn
            h = layer.input_layernorm(x)
            q, k, v = (p(h).view(1, 1, -1, self.D).transpose(1, 2) for p in (a.q_proj, a.k_proj, a.v_proj))
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
            K, V = torch.cat([self.cache[l][0], k[0]], 1), torch.cat([self.cache[l][1], v[0]], 1)
            self.cache[l] = [K, V]
            g = self.H // self.KV
            w = (q[0, :, 0].view(self.KV, g, self.D) @ K.transpose(1, 2) / self.D**0.5).softmax(-1)
            att.append(w.reshape(self.H, -1).numpy())
            x = x + a.o_proj((w @ V).reshape(1, 1, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        self.n += 1
        return int(self.m.lm_head(m.norm(x[:, -1])).argmax()), att


def streaming(n, initial, recent):
    return np.concatenate([np.arange(initial), np.arange(max(initial, n - recent), n)])


def run(sim, ids, policy, new):
    t = sim.prefill(ids, 16)
    out, n, info = [t], len(ids), {}
    lag_layers = range(2 if policy.get("variant") == "l2" else 0, sim.L)
    if policy["name"] == "streaming":
        for l in range(sim.L):
            sim.cut(l, np.tile(streaming(n, policy["initial"], policy["recent"]), (sim.KV, 1)))
    if policy["name"] == "lagkv":
        for l in lag_layers:
            k, v = (c.numpy() for c in sim.cache[l])
            sim.cut(l, ref.lag_kept(k, v, policy["sink"], policy["lag"], policy["ratio"], policy.get("variant", "lag")))
    if policy["name"] == "dynamickv":
        rows = np.stack(sim.rows)
        ws = policy["window"]
        A = ref.window_scores(rows, policy["kernel"], "avg")
        b = ref.dynamickv_budgets(A, policy["budget"], ws, policy["r_max"])["exact"]
        info["budgets"] = b.tolist()
        G = A.reshape(sim.L, sim.KV, -1, A.shape[-1]).mean(2)
        for l in range(sim.L):
            top = np.sort(np.argsort(-G[l], axis=-1, kind="stable")[:, : b[l]], -1)
            sim.cut(l, np.concatenate([top, np.tile(np.arange(n - ws, n), (sim.KV, 1))], 1))
    for i in range(new - 1):
        t, att = sim.step(out[-1])
        if i == 0 and policy["name"] == "simlayerkv":
            pos = sim.n - 1
            mass = [
                ref.proximal_mass(a[:, None].astype(np.float64), [pos], policy["initial"], policy["recent"]).mean()
                for a in att
            ]
            lazy = [l for l, s in enumerate(mass) if s > policy["threshold"]]
            info["lazy"], info["mass"] = lazy, [round(float(s), 6) for s in mass]
            for l in lazy:
                sim.cut(l, np.tile(streaming(sim.n, policy["initial"], policy["recent"]), (sim.KV, 1)))
        if policy["name"] == "lagkv":  # a reference partition is complete: cut the one before it
            S, P = policy["sink"], policy["lag"]
            if sim.n >= S + 2 * P and (sim.n - S) % P == 0:
                for l in lag_layers:
                    k, v = (c[:, -2 * P :].numpy() for c in sim.cache[l])
                    m = sim.cache[l][0].shape[1]
                    tail = ref.lag_kept(k, v, 0, P, policy["ratio"], policy.get("variant", "lag")) + m - 2 * P
                    sim.cut(l, np.concatenate([np.tile(np.arange(m - 2 * P), (sim.KV, 1)), tail], 1))
        out.append(t)
    info["cache_lengths"] = [c[0].shape[1] for c in sim.cache]
    return out, info


POLICIES = [dict(name="full"), dict(name="streaming", initial=4, recent=256)]
POLICIES += [dict(name="simlayerkv", threshold=t, initial=4, recent=256) for t in (0.4, 0.6, 0.7, 0.8, 0.9)]
POLICIES += [dict(name="lagkv", sink=16, lag=l, ratio=r) for l, r in ((128, 0.5), (128, 0.25), (256, 0.5), (256, 0.25))]
POLICIES += [dict(name="lagkv", sink=16, lag=128, ratio=0.25, variant=v) for v in ("local", "l2")]
POLICIES += [dict(name="dynamickv", window=16, budget=b, kernel=7, r_max=10) for b in (64, 128)]

if __name__ == "__main__":
    seed, length, count = map(int, sys.argv[3:6])
    tok = AutoTokenizer.from_pretrained(sys.argv[1])
    sim = Sim(AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval())
    rng, res, t0 = random.Random(seed), [], time.time()
    LONG = [dict(name="lagkv", sink=16, lag=128, ratio=0.25, variant=v) for v in ("lag", "local", "l2")]
    for i in range(count):
        text, key = passkey_prompt(tok, rng, length, 5, (i + 0.5) / count)
        ids = tok(text)["input_ids"]
        for p, new in [(p, 12) for p in POLICIES] + [(p, 40) for p in LONG if i < 2]:
            o, info = run(sim, ids, p, new)
            ok = tok.decode(o).replace(" ", "").find(key) >= 0
            res.append(dict(prompt=i, key=key, policy=p, new=new, generated=o, correct=ok, **info))
            if p["name"] == "full":
                res[-1]["tokens"] = ids
        print(i, len(ids), key, round(time.time() - t0), flush=True)
    json.dump(res, open(sys.argv[2], "w"))
    for p in POLICIES:
        r = [x for x in res if x["policy"] == p and x["new"] == 12]
        print(p, sum(x["correct"] for x in r) / len(r), "lazy", np.mean([len(x.get("lazy", [])) for x in r]))
