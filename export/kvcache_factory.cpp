// SPDX-License-Identifier: Apache-2.0
// KVCache-Factory reads a HeadKV file, from which run_longbench.py computes a capacity for each
// query head. If head_beta is 1, this is round(value / sum of values * cap * heads of all layers).
#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Form;

constexpr std::int64_t kWindow = 8;  // tokens that are kept besides a capacity

/// [layer][KV head], the tokens that are kept besides the window.
calibrate::HeadBudgets capacities(const PartRequest& request) {
  if (request.form == Form::headkv) return head_budgets(request);
  const auto kv_heads = static_cast<std::size_t>(request.document.model.kv_heads);
  calibrate::HeadBudgets out;
  if (request.form == Form::dynamickv) {
    for (const auto budget : budgets(request)) out.emplace_back(kv_heads, budget);
    return out;
  }
  const auto keep = proximal(request);
  const auto lazy_capacity = std::max<std::int64_t>(keep.initial + keep.recent - kWindow, 0);
  for (const auto& row : lazy_heads(request)) {
    auto& layer = out.emplace_back();
    for (const auto lazy : row) layer.push_back(lazy != 0 ? lazy_capacity : request.length);
  }
  return out;
}

/// The capacities that the program computes have --max_capacity_prompts as their mean, which is a
/// whole number. So each value in the file is moved by what the mean lacks to a whole number. That
/// is less than half a token, and rounding brings the capacities back.
struct HeadFile {
  std::int64_t cap = 0;
  std::string line;
  std::string note;
};

HeadFile head_file(calibrate::HeadBudgets capacity, std::int64_t group) {
  HeadFile file;
  const auto heads = static_cast<std::int64_t>(capacity.size() * capacity.at(0).size());
  std::int64_t sum = 0;
  for (const auto& row : capacity) sum = std::accumulate(row.begin(), row.end(), sum);
  if (2 * (sum % heads) == heads) {
    auto& row = *std::max_element(capacity.begin(), capacity.end());
    ++*std::max_element(row.begin(), row.end());
    ++sum;
    file.note =
        "One head has a token more than in the policy: a mean of half a token cannot be "
        "rounded away.";
  }
  file.cap = (2 * sum + heads) / (2 * heads);
  if (file.cap < 1)
    fail(ErrorCode::usage,
         "KVCache-Factory needs a mean budget of at least one token beside its "
         "window of 8: calibrate with a larger budget");
  const double moved = static_cast<double>(file.cap * heads - sum) / static_cast<double>(heads);
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  for (std::size_t l = 0; l < capacity.size(); ++l)
    for (std::size_t h = 0; h < capacity[l].size(); ++h)
      for (std::int64_t q = 0; q < group; ++q) {
        const auto name = str(l, "-", static_cast<std::int64_t>(h) * group + q);
        if (sum % heads == 0)
          line[name] = {capacity[l][h]};
        else
          line[name] = {static_cast<double>(capacity[l][h]) + moved};
      }
  file.line = line.dump() + '\n';
  return file;
}

}  // namespace

Exported export_kvcache_factory(const PartRequest& request) {
  const auto& model = request.document.model;
  const auto file = head_file(capacities(request), model.heads / model.kv_heads);
  Exported exported;
  exported.files = {{"headkv.json", file.line}};
  exported.use =
      str("# in the repository's folder, DIR being this one:\n"
          "python run_longbench.py --method HeadKV --model_path $MODEL \\\n"
          "    --max_capacity_prompts ",
          file.cap,
          " --head_path DIR/headkv.json --head_beta 1 \\\n"
          "    --kv_cache_granularity kv_head --gqa_score_agg mean \\\n"
          "    --attn_implementation flash_attention_2 --save_dir results\n");
  exported.notes = {
      str("The file, --max_capacity_prompts ", file.cap,
          " and --head_beta 1 belong together: the "
          "program computes the capacities from all three."),
      str("Prompts of fewer than ", file.cap, " tokens are left whole."),
      "It knows Llama and Mistral alone, needs transformers 4.44.2 and a CUDA GPU, and takes "
      "prompts one by one."};
  if (!file.note.empty()) exported.notes.push_back(file.note);
  if (!calibrate::window_budget(request.part))
    exported.notes.push_back(str(
        "A lazy head keeps as many tokens as in the policy, its 8 last ones and those that these "
        "attend to most; the others have a capacity of ",
        request.length, " tokens, so that prompts of up to that length are kept whole there."));
  return exported;
}

}  // namespace kvatlas::exporting
