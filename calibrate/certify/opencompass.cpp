// SPDX-License-Identifier: Apache-2.0
// OpenCompass: predictions/MODEL/DATASET.json has the prompts and answers under "0", "1", …; the
// file of the same name in results/ has the scores, with details unless --dump-eval-details false
// was given.
#include <algorithm>

#include "base/json_text.hpp"
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {

std::filesystem::path twin_in(const std::filesystem::path& path, const char* from, const char* to) {
  std::filesystem::path twin;
  bool found = false;
  for (const auto& part : path) {
    const bool is_it = part == from && !found;
    twin /= is_it ? std::filesystem::path(to) : part;
    found = found || is_it;
  }
  return found ? twin : std::filesystem::path();
}

namespace {

using nlohmann::json;

/// Whether it was right: a number or truth, or a list of those, one each time it was asked. By the
/// name that evaluators give it; null if none is there.
const json* verdict_in(const json& detail) {
  for (const char* name : {"correct", "is_correct", "cascade_correct"})
    if (const json* found = find_member(detail, name)) return found;
  return nullptr;
}

double score_in(const json& detail) {
  const json* found = verdict_in(detail);
  if (!found) fail(ErrorCode::unreadable, "has no 'correct'");
  if (!found->is_array() || found->empty()) return score_of(*found, "correct");
  double sum = 0;
  for (const auto& once : *found) sum += score_of(once, "correct");
  return sum / static_cast<double>(found->size());
}

bool is_prediction(const json& value) {
  return value.is_object() && value.contains("prediction") && value.contains("origin_prompt");
}

void read_opencompass(const Source& source, const ReadRequest& request, ResultFile& out) {
  const bool is_results = source.has("details");
  const auto twin = is_results ? twin_in(source.path, "results", "predictions")
                               : twin_in(source.path, "predictions", "results");
  const json other = twin.empty() ? json() : neighbour(twin);
  const json& predictions = is_results ? other : source.head;
  const json& results = is_results ? source.head : other;
  const std::string task = source.path.stem().string();
  const json* details = find_member(results, "details");
  if (!details && request.metric.empty())
    fail(ErrorCode::usage,
         "has answers without scores, and no results with details lie beside it: run OpenCompass "
         "with its details, or name a metric of docs/tasks.md with --metric");
  if (details && !request.metric.empty()) choose_metric({"correct"}, request);
  out.metric = details ? "correct" : request.metric;
  const std::string file = printable(source.path.filename().string(), 200);
  const auto add = [&](const std::string& key, const json* prediction, const json* detail) {
    in_context(quoted(key), [&] {
      Answer answer;
      answer.task = task;
      answer.key = key;
      if (prediction) {
        answer.text = short_key(json_text(need_member(*prediction, "origin_prompt")));
        answer.same = answer.text;
        answer.group = group_of(*prediction, request);
      } else {
        answer.group = group_of(*detail, request);
      }
      answer.score = detail ? score_in(*detail)
                            : recompute(task, text_member(*prediction, "prediction"),
                                        texts_member(*prediction, "gold"), {}, request)
                                  .score;
      answer.where = str(file, ", ", quoted(key));
      add_answer(out, std::move(answer));
    });
  };
  if (details) {
    // Where prompts were asked several times there are more answers than details.
    const bool have_prompts =
        predictions.is_object() &&
        std::count_if(details->begin(), details->end(), [](const json& one) {
          return one.is_object();
        }) == std::count_if(predictions.begin(), predictions.end(), is_prediction);
    std::size_t place = 0;
    for (const auto& [name, detail] : details->items()) {
      if (!detail.is_object()) continue;
      const std::string key = details->is_array() ? std::to_string(place++) : name;
      const json* prediction = have_prompts ? find_member(predictions, key) : nullptr;
      const json* own_name = find_member(detail, "example_abbr");
      add(own_name && own_name->is_string() ? own_name->get<std::string>() : key, prediction,
          &detail);
    }
  } else {
    for (const auto& [key, prediction] : predictions.items())
      if (is_prediction(prediction)) add(key, &prediction, nullptr);
  }
  if (const json* mean = find_member(results, "accuracy"); details && mean && mean->is_number())
    out.own_means.push_back({task, mean->get<double>() / 100, 1e-6});
}

bool knows_opencompass(const Source& s) {
  if (!s.head.is_object()) return false;
  if (s.has("details")) {
    const json& details = s.head["details"];
    const json* first =
        details.is_structured() && !details.empty() ? &details.begin().value() : nullptr;
    return first && first->is_object() && verdict_in(*first);
  }
  return !s.head.empty() && s.head.contains("0") && is_prediction(s.head["0"]);
}

}  // namespace

Format opencompass_format() {
  return {{"opencompass", "results/MODEL/DATASET.json, predictions/…",
           "the key; origin_prompt must agree", "details[k].correct, or by --metric"},
          knows_opencompass,
          read_opencompass};
}

}  // namespace kvatlas::calibrate
