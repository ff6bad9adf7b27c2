// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/str.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr std::int64_t kBlock = 32;  // in tokens; all sizes are multiples of it

/// The first and the recent tokens fill whole blocks, and one more block is kept.
void add_spare_block(RuntimePolicy& theirs, Proximity& keep) {
  set(theirs, keep.initial, whole_pages(keep.initial, kBlock),
      "the first tokens are rounded up to whole blocks of 32");
  keep.recent = whole_pages(keep.recent, kBlock) + kBlock;
  theirs.changes.push_back(str("the recent tokens are whole blocks of 32 and a spare one, ",
                               keep.recent, " tokens, the spare one kept by its attention"));
  set(theirs, theirs.policy.rolling, true, "the cache keeps its size while decoding");
}

}  // namespace

Runtime openvino() {
  const Losses losses = {Loss::keeps_other_tokens, Loss::whole_blocks};
  Runtime r{"openvino", "OpenVINO GenAI", "2026.4.1"};
  r.forms[Form::lazy_layers] = {Fit::approximate, losses, "one setting for all layers"};
  r.forms[Form::dynamickv] = {Fit::approximate, losses, "one budget for all layers"};
  r.page_tokens = kBlock;
  r.keeps_windows_whole = true;  // its scheduler hands out blocks for every token of every layer
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo&) {
    Part& part = theirs.policy.parts.front();
    if (const auto* dynamic = std::get_if<DynamicKv>(&part)) {
      // At least the first block, the last one, and one for the tokens that took most attention.
      const auto budget = std::max(whole_pages(mean_budget(*dynamic), kBlock), 3 * kBlock);
      theirs.changes.push_back(
          str("every layer keeps the ", budget, " tokens that took most attention"));
      part = H2o{budget};
    } else if (leaves_full_layers(part)) {
      theirs.not_simulated = "all layers have the mean of what the policy keeps";
    } else {
      add_spare_block(theirs, *kept_window(part));
    }
  };
  return r;
}

}  // namespace kvatlas::calibrate
