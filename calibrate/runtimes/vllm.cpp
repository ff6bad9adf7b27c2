// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {
namespace {

/// The exported file asks for blocks of this size, which vLLM's attention takes on CPUs and GPUs.
constexpr std::int64_t kBlockTokens = 32;
/// A page of 16-bit layers is as large as one of twice as many tokens in 8 bits, and vLLM wants the
/// larger number.
constexpr std::int64_t kBlockTokensOfFormats = 64;

/// A selection is made from keys, values and queries as vLLM's attention has them.
void require_scores(const Part& part) {
  if (std::holds_alternative<CriticalKv>(part))
    fail(ErrorCode::usage, "its scores need the output projection, which attention does not see");
  if (std::holds_alternative<ExpectedAttention>(part))
    fail(ErrorCode::usage, "its scores need queries before RoPE, which attention does not see");
  if (const auto* chunks = std::get_if<ChunkKv>(&part);
      chunks && 2 * chunks->select.window < chunks->chunk - 1)
    fail(ErrorCode::usage, "with chunks of ", chunks->chunk, " tokens and a window of ",
         chunks->select.window,
         " the number of tokens kept depends on the prompt's text, and vLLM's "
         "scheduler does not see it: chunk=",
         2 * chunks->select.window + 1, " is the most");
}

/// vLLM knows a window of the model's own by the places of tokens, which lazy heads change.
void require_no_windows(const ModelInfo& model) {
  const auto own = std::find_if(model.windows.begin(), model.windows.end(),
                                [](const auto window) { return window > 0; });
  if (own != model.windows.end())
    fail(ErrorCode::usage, "layer ", own - model.windows.begin(),
         " has a window of the model's own, of ", *own,
         " tokens, and vLLM knows windows by the places of tokens, which this policy changes");
}

}  // namespace

Runtime vllm() {
  Runtime r{"vllm", "vLLM", "0.32 and 0.33"};
  r.forms[Form::lazy_layers] = {Fit::exact, {}, "by the plugin kvatlas_vllm"};
  r.forms[Form::lazy_heads] = {Fit::exact, {}, "by the plugin, heads packed into the same blocks"};
  r.forms[Form::dynamickv] = {Fit::exact, {}, "by the plugin kvatlas_vllm"};
  r.forms[Form::headkv] = {Fit::exact, {}, "by the plugin, heads packed into the same blocks"};
  r.forms[Form::lagkv] = {Fit::exact, {}, "by the plugin kvatlas_vllm"};
  r.forms[Form::selected] = {
      Fit::exact, {}, "by the plugin: SnapKV, PyramidKV, ChunkKV, TOVA, KeyDiff, H2O"};
  r.forms[Form::precision] = {Fit::approximate,
                              {Loss::rounds_otherwise},
                              "as its dtype of the cache and the layers without it"};
  using enum KvFormat;
  const std::set<KvFormat> turboquant = {turboquant_k8v4, turboquant_4bit_nc, turboquant_k3v4_nc,
                                         turboquant_3bit_nc};
  FormatsTaken& taken = r.formats_taken;
  taken = {{fp8, fp8_cpu, fp8_e5m2, fp8_e5m2_cpu, int8_per_token_head, fp8_per_token_head,
            int4_per_token_head, nvfp4},
           true,
           false,
           kBlockTokensOfFormats};
  taken.formats.insert(turboquant.begin(), turboquant.end());
  taken.one_format = true;
  taken.ends = 2;
  taken.tried = {fp8, int8_per_token_head, int4_per_token_head, turboquant_4bit_nc};
  r.backends = {{"cpu", {fp8, fp8_e5m2, fp8_cpu, fp8_e5m2_cpu}, true, false},
                {"flash-attn", {fp8}, false, true},
                {"triton",
                 {fp8, fp8_e5m2, int8_per_token_head, fp8_per_token_head, int4_per_token_head},
                 false,
                 true},
                {"flashinfer", {fp8, fp8_e5m2, nvfp4}, false, false},
                {"flashinfer-sm100", {fp8, fp8_e5m2, nvfp4}, false, true},
                {"turboquant", turboquant, false, false}};
  r.page_tokens = kBlockTokens;
  r.equal_groups = true;
  r.moves_rows = true;
  r.composes = true;
  r.selects_beside_windows = true;
  r.bend = [](RuntimePolicy& theirs, const Losses&, const ModelInfo& model) {
    set(theirs, theirs.policy.masks_prefill, false, "the prompt sees all of itself");
    const Part& part = theirs.policy.parts.front();
    const Form form = form_of(part).value();
    if (form == Form::lazy_layers) return;
    if (form == Form::lazy_heads) {
      set(theirs, theirs.policy.rolling, false, "what is generated is kept");
      require_no_windows(model);
    }
    require_scores(part);
    if (form == Form::dynamickv || form == Form::headkv) require_budgets(part);
  };
  return r;
}

}  // namespace kvatlas::calibrate
