// SPDX-License-Identifier: Apache-2.0
// DuoAttention reads a head pattern, with 1 for retrieval heads and 0 for streaming heads.
#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

Exported export_duo_attention(const PartRequest& request) {
  const auto& model = request.document.model;
  if (model.layers < 2 || model.kv_heads < 2)
    fail(ErrorCode::usage, "DuoAttention reads its table of heads with numpy.loadtxt, which makes ",
         "a list of a single row or column: it needs at least 2 layers and 2 KV heads, found ",
         model.layers, " and ", model.kv_heads);
  std::string table;
  const auto lazy = lazy_heads(request);
  for (const auto& row : lazy) {
    for (std::size_t h = 0; h < row.size(); ++h)
      table += str(h == 0 ? "" : "\t", row[h] != 0 ? "0.0" : "1.0");
    table += '\n';
  }
  const auto keep = proximal(request);
  // DuoAttention takes the quantile at this share as its threshold. It lies between the zeros and
  // the ones, so that the table stays as it is.
  const std::string sparsity = nlohmann::json(lazy_share(lazy)).dump();
  Exported exported;
  exported.files = {{"full_attention_heads.tsv", table},
                    {"config.json", calibrate::canonical_json({{"sink_size", keep.initial},
                                                               {"recent_size", keep.recent}})}};
  exported.use =
      "# in the repository's folder, DIR being this one and NAME the model's in\n"
      "# eval/LongBench/config/model2path.json:\n"
      "python -u eval/LongBench/pred.py --model NAME --task qasper --method duo_attn \\\n"
      "    --attn_load_dir DIR --sparsity " +
      sparsity +
      "\n"
      "\n"
      "# or in Python:\n"
      "from duo_attn.utils import load_attn_pattern, sparsify_attention_heads\n"
      "from duo_attn.patch import enable_duo_attention_eval\n"
      "heads, sink_size, recent_size = load_attn_pattern(\"DIR\")\n"
      "heads, _ = sparsify_attention_heads(heads, sparsity=" +
      sparsity +
      ")\n"
      "enable_duo_attention_eval(model, heads, sink_size, recent_size)\n";
  exported.notes = {
      "The sparsity is the share of streaming heads; another one would move heads from one kind to "
      "the other. The sizes are those that load_attn_pattern returns: pass them on, for the "
      "repository's example has sizes of its own.",
      "The prompt has to be prefilled in one piece: in pieces, streaming heads see sink and recent "
      "tokens alone from the second piece on.",
      "It needs transformers 4.45.2, flash-attn and a CUDA GPU."};
  return exported;
}

}  // namespace kvatlas::exporting
