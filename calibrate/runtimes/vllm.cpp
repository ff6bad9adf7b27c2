// SPDX-License-Identifier: Apache-2.0
#include "base/str.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {
namespace {

/// The exported file asks for blocks of this size, which vLLM's attention takes on CPUs and GPUs.
constexpr std::int64_t kBlockTokens = 32;
/// A page of 16-bit layers is as large as one of twice as many tokens in 8 bits, and vLLM wants the
/// larger number.
constexpr std::int64_t kBlockTokensOfFormats = 64;

}  // namespace

Runtime vllm() {
  Runtime r{"vllm", "vLLM", "0.32 and 0.33"};
  r.forms[Form::lazy_layers] = {Fit::exact, {Loss::whole_blocks}, "by the plugin kvatlas_vllm"};
  r.forms[Form::precision] = {Fit::approximate,
                              {Loss::rounds_otherwise},
                              "as its dtype of the cache and the layers without it"};
  r.formats_taken = {{KvFormat::fp8}, true, false, kBlockTokensOfFormats};
  r.page_tokens = kBlockTokens;
  r.equal_groups = true;
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo&) {
    set(theirs, theirs.policy.masks_prefill, false, "the prompt sees all of itself");
    theirs.changes.push_back(
        str("whole blocks are kept, so up to ", 2 * (kBlockTokens - 1), " tokens more a layer"));
    theirs.policy.block_tokens = kBlockTokens;
  };
  return r;
}

}  // namespace kvatlas::calibrate
