// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/picture_list.hpp"

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"

namespace kvatlas::viewer {

const std::vector<PictureEntry>& picture_list() {
  constexpr const char *lazy = "profile --capture lazy", *js = "profile --capture js",
                       *scores = "profile --capture scores";
  static const std::vector<PictureEntry> kPictures = {
      {PictureKind::lazy, "lazy", "SimLayerKV: lazy layers, scores below", lazy, false},
      {PictureKind::lazy_layers, "lazy-layers", "SimLayerKV: lazy layers", lazy},
      {PictureKind::lazy_rates, "lazy-rates", "SimLayerKV: lazy rate and consistency", lazy},
      {PictureKind::lazy_scores, "lazy-scores", "SimLayerKV: score and cache kept", lazy},
      {PictureKind::blocks, "blocks", "PoD: similarity of layers; with --at one head", js},
      {PictureKind::blocks_sweep, "blocks-sweep", "PoD: what every delta saves", js},
      {PictureKind::blocks_counts, "blocks-counts", "PoD: blocks of each head", js, false},
      {PictureKind::gate, "gate", "PoD: distant attention skipped over tau",
       "profile --capture js,lazy"},
      {PictureKind::budgets, "budgets", "DynamicKV: tokens by layer and task", scores},
      {PictureKind::budgets_lines, "budgets-lines", "DynamicKV: tokens by layer, a line a task",
       scores},
      {PictureKind::budgets_shares, "budgets-shares", "DynamicKV: each layer's share", scores,
       false},
      {PictureKind::sweep, "sweep", "LagKV: score against compression",
       "a document of 'calibrate lagkv'"},
      {PictureKind::precision, "precision", "Precision: what fewer bits cost each layer",
       "a document of 'calibrate precision'"},
      {PictureKind::precision_curve, "precision-curve", "Precision: score and KL against size",
       "a document of 'calibrate precision'"},
      {PictureKind::overview, "overview", "every policy at its present setting", "profile", false},
      {PictureKind::comparison, "comparison", "score of every policy against the cache kept",
       "a document of 'calibrate --model' or 'evaluate -o'"},
      {PictureKind::comparison_read, "comparison-read",
       "score of every policy against the cache read a token", "a document of 'evaluate -o'"},
      {PictureKind::comparison_layers, "comparison-layers", "what each policy keeps of each layer",
       "a document of 'calibrate'"},
      {PictureKind::comparison_memory, "comparison-memory",
       "what each policy holds over generated tokens", "a document of 'evaluate -o'"},
      {PictureKind::comparison_turns, "comparison-turns",
       "score of each question about one context", "a document of 'evaluate -o'"},
      {PictureKind::needle, "needle", "scores over length and depth",
       "a document of 'evaluate -o'"},
      {PictureKind::difference, "difference", "the second profile less the first", "two profiles",
       false},
      {PictureKind::mass, "mass", "Proximal mass by layer and token of a sample", lazy},
      {PictureKind::map, "map", "Attention map of a head (--at), mean of blocks",
       "profile --capture maps"},
      {PictureKind::grid, "grid", "Attention maps of all heads", "profile --capture maps"},
      {PictureKind::rows, "rows", "Attention of the last rows; with --at one head",
       "profile --capture maps"},
      {PictureKind::text, "text", "The prompt, by the attention that the last rows give it",
       "profile --capture maps", false},
      {PictureKind::kept, "kept", "What policies keep of a prompt, in its text",
       "lines of 'evaluate --generations --positions'", false},
  };
  return kPictures;
}

const PictureEntry& picture_named(const std::string& name) {
  for (const auto& picture : picture_list())
    if (name == picture.name) return picture;
  fail(ErrorCode::usage, "there is no picture ", quoted(name), "; there are: ",
       join(picture_list(), ", ", [](const auto& picture) { return picture.name; }));
}

}  // namespace kvatlas::viewer
