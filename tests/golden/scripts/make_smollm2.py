# SPDX-License-Identifier: Apache-2.0
"""Makes golden data for SmolLM2-135M-Instruct: python make_smollm2.py MODEL_DIR OUT.h5 name=textfile:start:tokens ...

MODEL_DIR: the model as transformers saved it (float32). Needs torch, transformers, h5py.
"""

import sys
import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
import reference as ref

torch.manual_seed(0)
model_dir, out = sys.argv[1], sys.argv[2]
tok = AutoTokenizer.from_pretrained(model_dir)
model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()

LAG_LAYERS = (0, 10, 29)
with h5py.File(out, "w") as f:
    f.attrs["model"] = "SmolLM2-135M-Instruct.Q4_1.gguf, dequantised to float32"
    for spec in sys.argv[3:]:
        name, rest = spec.split("=", 1)
        path, start, count = rest.rsplit(":", 2)
        text = open(path, encoding="utf-8").read()
        ids = tok(text, add_special_tokens=False)["input_ids"][int(start) : int(start) + int(count)]
        x = torch.tensor([ids])
        with torch.no_grad():
            o = model(x, output_attentions=True, use_cache=True)
        rows = np.stack([a[0].numpy() for a in o.attentions])  # L,H,n,n
        L, H, n, _ = rows.shape
        g = f.create_group(name)
        z = dict(compression="gzip", compression_opts=6)
        g["tokens"] = np.array(ids, np.int32)
        logits = o.logits[0, -1].numpy()
        top = np.argsort(-logits)[:20]
        g["logits_last_top_ids"], g["logits_last_top_values"] = top.astype(np.int32), logits[top]
        g["logits_last_sum"] = np.float64(logits.astype(np.float64).sum())
        g["argmax_every_position"] = o.logits[0].argmax(-1).numpy().astype(np.int32)
        g.create_dataset("rows_last2", data=rows[:, :, -2:], **z)
        last = rows[:, :, -32:]
        pos = np.arange(n - 32, n)
        for initial, recent in ((4, 64), (4, 256), (16, 240)):
            d = g.create_dataset(
                f"proximal_mass_{initial}_{recent}",
                data=ref.proximal_mass(last.astype(np.float64), pos, initial, recent),
                **z,
            )
            d.attrs["axes"] = "layer, head, query row (the last 32, ascending)"
        js = ref.js_matrix(rows[:, :, -16:])
        g.create_dataset("js_divergence_q16", data=js, **z)
        for delta in (0.5, 0.7, 0.9):
            blocks = np.zeros((H, L), np.int32)
            for h in range(H):
                for b, members in enumerate(ref.greedy_blocks(1 - js[h], delta)):
                    blocks[h, members] = b
            g[f"pod_block_of_layer_{delta}"] = blocks
        for pooling in ("avg", "max"):
            A = ref.window_scores(rows[:, :, -16:], 7, pooling)
            g.create_dataset(f"window_scores_ws16_k7_{pooling}_layers_0_15", data=A[[0, 15]].astype(np.float32), **z)
            for wt in (64, 128, 256):
                r = ref.dynamickv_budgets(A, wt, 16, 10)
                d = g.create_group(f"dynamickv_wt{wt}_ws16_k7_{pooling}_rmax10")
                for k, v in r.items():
                    d[k] = v
        for layer in LAG_LAYERS:
            c = o.past_key_values.layers[layer]
            K, V = c.keys[0].numpy(), c.values[0].numpy()
            d = g.create_group(f"lagkv_layer{layer}")
            for lag, ratio in ((64, 0.5), (128, 0.25), (128, 0.125), (256, 0.5)):
                for variant in ("lag", "local") + (("l2",) if layer > 1 else ()):
                    d[f"kept_S16_L{lag}_r{ratio}_{variant}"] = ref.lag_kept(K, V, 16, lag, ratio, variant).astype(
                        np.int32
                    )
            d.create_dataset("key_last", data=K[:, -1])
            d.create_dataset("value_last", data=V[:, -1])
        g.create_dataset("column_sums", data=rows.sum(2, dtype=np.float64), **z)
        b = 64
        m = n // b * b
        bm = rows[:, :, :m, :m].reshape(L, H, m // b, b, m // b, b).mean((3, 5))
        g.create_dataset("block_mean_64", data=bm.astype(np.float32), **z)
        bx = rows[:, :, :m, :m].reshape(L, H, m // b, b, m // b, b).max(5).max(3)
        g.create_dataset("block_max_64", data=bx.astype(np.float32), **z)
        print(name, n, "done", flush=True)
