// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/runtimes/runtime_impl.hpp"

namespace kvatlas::calibrate {
namespace {

/// Scores by the prompt's last rows take the queries anew, without norms that kvpress does not
/// know.
void require_known_queries(const ModelInfo& model) {
  static const std::set<std::string> known = {"gemma3", "llama", "mistral",
                                              "phi3",   "qwen2", "qwen3"};
  if (!known.contains(model.architecture))
    fail(ErrorCode::usage, "it computes the last rows' queries anew, as ", join(known),
         " do, and is not known to do it for architecture ", quoted(model.architecture));
}

/// SimLayerKVPress decides on the last row of the prompt, and counts that row's own token among the
/// recent ones.
void decide_on_prompt(RuntimePolicy& theirs, SimLayerKv& part) {
  part.identify = SimLayerKv::Identify::prefill;
  part.w_last = 1;
  part.without_own_key = true;
  theirs.changes.emplace_back(
      "it decides on the last prompt row instead of the first generated token");
  if (part.keep.recent > 1) {
    --part.keep.recent;
    theirs.changes.push_back(
        str("it keeps ", part.keep.recent, " recent tokens, for the last row's own is counted"));
  }
  if (part.per_head) fail(ErrorCode::usage, "it decides for layers, not for heads");
}

/// DecodingPress hands the scorer what its cache holds, in the order of the scores at its last
/// choice.
void choose_while_decoding(RuntimePolicy& theirs, Decoding& part, const ModelInfo& model) {
  using By = Decoding::By;
  if (part.by != By::keydiff && part.by != By::tova && part.by != By::snapkv)
    fail(ErrorCode::usage, "its presses know no '",
         setting_words("decoding", "by")[static_cast<std::size_t>(part.by)],
         "' that chooses while decoding: by=keydiff, by=tova or by=snapkv do");
  if (part.by != By::keydiff) require_known_queries(model);
  set(theirs, part.whole_prompt, true, "it leaves the prompt whole until the first choice");
  if (part.by == By::snapkv && (part.window > 1 || part.kernel > 1))
    theirs.not_simulated =
        "it pools scores over tokens in another order, and takes the window's queries as if all "
        "stood at the last token's place";
}

}  // namespace

Runtime kvpress() {
  Runtime r{"kvpress", "NVIDIA kvpress", "0.5.5"};
  r.forms[Form::lazy_layers] = {Fit::exact, {Loss::holds_at_length}, "as a ratio for each layer"};
  r.forms[Form::lazy_by_input] = {
      Fit::approximate, {}, "SimLayerKVPress decides on the last prompt row, own key not counted"};
  r.forms[Form::lazy_heads] = {Fit::exact, {Loss::memory_not_freed}, "as a DuoAttention pattern"};
  r.forms[Form::dynamickv] = {
      Fit::exact, {Loss::holds_at_length}, "SnapKV's scores, with average pooling alone"};
  r.forms[Form::headkv] = {Fit::exact,
                           {Loss::holds_at_length, Loss::memory_not_freed},
                           "as a curve of LUKVPress; SnapKV's scores, with average pooling alone"};
  r.forms[Form::lagkv] = {
      Fit::exact, {Loss::holds_at_length}, "for the prompt; nothing is cut while decoding"};
  r.forms[Form::selected] = {
      Fit::exact, {Loss::holds_at_length}, "for the prompt, by the press of the method's name"};
  r.forms[Form::selected_by_head] = {Fit::exact,
                                     {Loss::holds_at_length, Loss::memory_not_freed},
                                     "AdaKV with SnapKV's scores, average pooling alone; KVzip"};
  r.forms[Form::decoding] = {
      Fit::approximate,
      {},
      "as DecodingPress with KeyDiff, TOVA or SnapKV, which leaves the prompt "
      "whole; exact but for SnapKV's window and pooling"};
  r.architecture_decides = true;
  r.refuses = {{"gpt_oss", "its presses cut the caches of windows as if they were full ones"},
               {"llama4", "its presses cut the caches of chunks as if they were full ones"}};
  r.bend = [](RuntimePolicy& theirs, const Losses& losses, const ModelInfo& model) {
    Part& part = theirs.policy.parts.front();
    const bool selects = form_of(part) == Form::selected || form_of(part) == Form::selected_by_head;
    if (std::holds_alternative<SnapKv>(part) || std::holds_alternative<H2o>(part))
      fail(ErrorCode::usage, "its press for this selection is given a ratio by hand");
    WindowBudget* const by_window = window_budget(part);
    if (by_window || (selects && !std::holds_alternative<KeyDiff>(part)))
      require_known_queries(model);
    if (auto* decoding = std::get_if<Decoding>(&part))
      return choose_while_decoding(theirs, *decoding, model);
    if (std::holds_alternative<KvZip>(part) && model.architecture == "gemma3")
      fail(ErrorCode::usage, "KVzipPress takes no Gemma 3");
    if (by_window) {
      const Form form = form_of(part).value();
      if (form == Form::dynamickv || form == Form::headkv) require_budgets(part);
      set(theirs, by_window->pooling, Pooling::average, "it pools scores by their average");
    } else if (const auto* lag = std::get_if<LagKv>(&part)) {
      require_plain(*lag);
      theirs.changes.emplace_back("nothing is cut while decoding, which is not simulated");
    } else if (!selects) {
      auto* lazy = std::get_if<SimLayerKv>(&part);
      if (lazy && !lazy->fixed) {
        require_known_queries(model);
        decide_on_prompt(theirs, *lazy);
      }
      bend_window(theirs, losses, model);
    }
  };
  return r;
}

}  // namespace kvatlas::calibrate
