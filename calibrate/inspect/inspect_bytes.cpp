// SPDX-License-Identifier: Apache-2.0
#include "calibrate/inspect/inspect_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

std::string bytes_text(double bytes) { return bytes_str(std::llround(bytes)); }

CacheLoad load_of(const Document& document, const BytesQuestion& question) {
  CacheLoad load;
  load.shape = cache_shape(document.model);
  load.prompt = question.context;
  load.new_tokens = question.new_tokens;
  if (!question.runtime.empty()) load.runtime = &runtime_named(question.runtime);
  return load;
}

double needed(const PolicyBytes& policy, const BytesQuestion& question) {
  return policy.cache.total() * static_cast<double>(question.batch) + question.weights;
}

/// A row for all layers in which a policy keeps the same.
Table layer_table(const BytesAnswer& answer) {
  Table table{str("Tokens and bytes that each layer keeps of one sequence of ",
                  answer.question.context, " tokens",
                  answer.question.new_tokens > 0
                      ? str(" and ", answer.question.new_tokens, " generated ones")
                      : ""),
              {"policy", "tokens", "bytes", {"in layers", "", true}},
              {}};
  for (const auto& policy : answer.policies) {
    std::vector<std::pair<Table::Row, std::vector<std::int64_t>>> alike;
    const auto& layers = policy.cache.layers;
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const auto& [tokens, bytes] = layers[layer];
      const std::string name = printable(policy.name) + (policy.cache.by_input ? " (mean)" : "");
      const Table::Row row = {alike.empty() ? name : "",
                              fixed_text(tokens, tokens == std::floor(tokens) ? 0 : 1),
                              bytes_text(bytes)};
      auto same = std::find_if(alike.begin(), alike.end(), [&](const auto& of) {
        return of.first[1] == row[1] && of.first[2] == row[2];
      });
      if (same == alike.end()) same = alike.insert(same, {row, {}});
      same->second.push_back(static_cast<std::int64_t>(layer));
    }
    for (auto& [row, numbers] : alike) {
      row.push_back(ranges_text(numbers));
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

Table total_table(const BytesAnswer& answer) {
  const BytesQuestion& question = answer.question;
  Table table{"", {"policy", "a sequence", "of full"}, {}};
  table.title =
      str("Memory of ", count_of(question.batch, "sequence", "sequences of so many tokens"),
          question.weights > 0 ? str(", weights of ", bytes_text(question.weights), " included")
                               : ", without weights (--model or --weights adds them)");
  table.columns.push_back(question.batch == 1 ? "in all" : str(question.batch, " and weights"));
  if (question.memory > 0) {
    table.columns.push_back("batch that fits " + bytes_text(question.memory));
    table.columns.push_back("context that fits");
  }
  const double full = answer.policies.front().cache.total();
  const bool is_read_whole = answer.policies.front().read_bytes.has_value();
  if (is_read_whole) table.columns.insert(table.columns.begin() + 1, "while its prompt is read");
  for (const auto& policy : answer.policies) {
    const double bytes = policy.cache.total();
    table.rows.push_back({printable(policy.name), bytes_text(bytes), percent_text(bytes / full),
                          bytes_text(needed(policy, question))});
    if (is_read_whole)
      table.rows.back().insert(table.rows.back().begin() + 1,
                               bytes_text(policy.read_bytes.value()));
    if (question.memory <= 0) continue;
    table.rows.back().push_back(str(policy.room.batch));
    table.rows.back().push_back(policy.room.context >= kMostContext ? "any"
                                                                    : str(policy.room.context));
  }
  return table;
}

}  // namespace

BytesAnswer policy_bytes(const Document& document, const BytesQuestion& question) {
  BytesAnswer answer{question, {}, {}};
  const CacheLoad load = load_of(document, question);
  const double room = question.memory - question.weights;
  const auto add = [&](std::string name, const Policy& policy, std::optional<LazyRates> rates) {
    CacheLoad own = load;
    own.lazy_rates = std::move(rates);
    PolicyBytes row{std::move(name), cache_bytes(policy, own), bytes_while_read(policy, own)};
    if (question.memory > 0) row.room = greatest(policy, own, room, question.batch);
    if (row.cache.by_input && !own.lazy_rates)
      answer.notes.push_back(row.name +
                             ": what it keeps depends on the input, and the document does not say "
                             "how often: the figure is the most that it can take");
    answer.policies.push_back(std::move(row));
  };
  add("full", {.name = "full", .parts = {}}, {});
  for (auto& policy : policies_of(document)) {
    const std::string name = policy.name;
    if (load.runtime) {
      try {
        auto given = given_to_runtime(document, policy, *load.runtime);
        auto behaves = as_runtime_behaves(given.policy, question.runtime, document.model);
        for (const auto& change : behaves.changes) answer.notes.push_back(name + ": " + change);
        policy = std::move(behaves.policy);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::usage) throw;
        answer.notes.push_back("left out: " + std::string(error.what()));
        continue;
      }
    }
    add(name, policy, lazy_rates_of(document, policy));
  }
  if (answer.policies.size() == 1)
    fail(ErrorCode::usage,
         answer.notes.empty() ? "the document holds no policy" : answer.notes.front());
  if (!document.model.layer_numbers.empty())
    answer.notes.emplace_back(
        "layers without attention hold a state of fixed size a sequence, which is not counted");
  if (question.memory > 0 && answer.policies.front().read_bytes)
    answer.notes.emplace_back(
        "a prompt is held whole until it is read and cut: of the sequences that fit, one is being "
        "read and the others are at their ends");
  if (question.memory > 0 && room <= 0)
    answer.notes.push_back(str("the weights alone, ", bytes_text(question.weights),
                               ", take more than the ", bytes_text(question.memory)));
  return answer;
}

std::vector<Table> bytes_tables(const BytesAnswer& answer) {
  return {layer_table(answer), total_table(answer)};
}

json bytes_json(const BytesAnswer& answer) {
  const BytesQuestion& question = answer.question;
  json out = {{"context", question.context}, {"new_tokens", question.new_tokens},
              {"batch", question.batch},     {"weights_bytes", count_json(question.weights)},
              {"notes", answer.notes},       {"policies", json::array()}};
  if (!question.runtime.empty()) out["runtime"] = question.runtime;
  if (question.memory > 0) out["memory_bytes"] = count_json(question.memory);
  for (const auto& policy : answer.policies) {
    json layers = json::array();
    for (const auto& layer : policy.cache.layers)
      layers.push_back({{"tokens", count_json(layer.tokens)}, {"bytes", count_json(layer.bytes)}});
    json row = {{"policy", policy.name},
                {"layers", std::move(layers)},
                {"padding_bytes", count_json(policy.cache.padding)},
                {"by_input", policy.cache.by_input},
                {"sequence_bytes", count_json(policy.cache.total())},
                {"all_bytes", count_json(needed(policy, question))}};
    if (policy.read_bytes) row["read_bytes"] = count_json(*policy.read_bytes);
    if (question.memory > 0) {
      row["greatest_batch"] = policy.room.batch;
      row["greatest_context"] = policy.room.context;
    }
    out["policies"].push_back(std::move(row));
  }
  return out;
}

}  // namespace kvatlas::calibrate
