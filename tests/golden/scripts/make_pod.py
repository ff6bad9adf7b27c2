# SPDX-License-Identifier: Apache-2.0
"""What SmolLM2 generates when it decodes under PoD: python make_pod.py MODEL_DIR GOLDEN.h5 PROMPT POLICIES.json OUT.json

Blocks come from the JS matrices of one prompt of GOLDEN.h5; prompts from POLICIES.json.
Prefill is full attention. In every decode step, head h of layer l scores distant keys with the
query and keys of the lowest layer of its block, and proximal keys with its own; one softmax joins both
(that is Eq. 3-4 with the gate g).
"""

import json, sys
import h5py, numpy as np, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
import reference as ref
from make_policies import Sim


class Pod(Sim):
    @torch.no_grad()
    def step(self, token, lowest, initial, recent):
        m = self.m.model
        x = m.embed_tokens(torch.tensor([[token]]))
        cos, sin = m.rotary_emb(x, torch.tensor([[self.n]]))
        g, Q = self.H // self.KV, []
        for l, layer in enumerate(m.layers):
            a = layer.self_attn
            h = layer.input_layernorm(x)
            q, k, v = (p(h).view(1, 1, -1, self.D).transpose(1, 2) for p in (a.q_proj, a.k_proj, a.v_proj))
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
            Q.append(q[0, :, 0])
            self.cache[l] = [torch.cat([self.cache[l][0], k[0]], 1), torch.cat([self.cache[l][1], v[0]], 1)]
            t = self.n + 1
            j = torch.arange(t)
            distant = (j >= initial) & (j <= self.n - recent)
            heads = []
            for hd in range(self.H):
                own = self.cache[l][0][hd // g] @ Q[l][hd] / self.D**0.5
                la = lowest[hd][l]
                low = self.cache[la][0][hd // g] @ Q[la][hd] / self.D**0.5
                heads.append(torch.where(distant, low, own).softmax(-1) @ self.cache[l][1][hd // g])
            x = x + a.o_proj(torch.cat(heads).view(1, 1, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        self.n += 1
        return int(self.m.lm_head(m.norm(x[:, -1])).argmax())


model_dir, gold, prompt, pol, out = sys.argv[1:]
tok = AutoTokenizer.from_pretrained(model_dir)
sim = Pod(AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval())
js = h5py.File(gold)[f"{prompt}/js_divergence_q16"][()]
res = []
for p in [r for r in json.load(open(pol)) if "tokens" in r]:
    for delta in (0.5, 0.7, 0.9):
        lowest = []
        for h in range(js.shape[0]):
            row = [0] * js.shape[1]
            for b in ref.greedy_blocks(1 - js[h], delta):
                for l in b:
                    row[l] = b[0]
            lowest.append(row)
        t = [sim.prefill(p["tokens"], 16)]
        for _ in range(11):
            t.append(sim.step(t[-1], lowest, 16, 240))
        ok = p["key"] in tok.decode(t).replace(" ", "")
        low, g = np.array(lowest), sim.H // sim.KV  # [H, L]
        read = np.zeros((sim.KV, sim.L), bool)  # KV heads whose distant keys some query head reads
        for h in range(sim.H):
            read[h // g, np.unique(low[h])] = True
        res.append(
            dict(
                prompt=p["prompt"],
                policy=dict(
                    name="pod", delta=delta, initial=16, recent=240, granularity="head", blocks=f"smollm2.h5#{prompt}"
                ),
                lowest_layer=lowest,
                generated=t,
                correct=ok,
                query_head_blocks=int(sum(len(set(r)) for r in lowest)),
                keys_dropped=float(1 - read.mean()),
            )
        )
        print(p["prompt"], delta, ok, round(res[-1]["keys_dropped"], 4), flush=True)
json.dump(res, open(out, "w"))
