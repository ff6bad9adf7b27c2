// SPDX-License-Identifier: Apache-2.0
// inspect-ai's logs as JSON (`inspect eval --log-format json`, or `inspect log convert`).
#include <algorithm>

#include "base/json_text.hpp"
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

/// Letters count as inspect-ai's value_to_float() takes them: C(orrect), P(artial), I(ncorrect),
/// N(o answer).
double value_of(const json& score, const std::string& metric) {
  const json& value = need_member(score, "value");
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "C") return 1;
    if (text == "P") return 0.5;
    if (text == "I" || text == "N") return 0;
  }
  return score_of(value, metric);
}

void read_inspect_ai(const Source& source, const ReadRequest& request, ResultFile& out) {
  const json& samples = need_member(source.head, "samples");
  if (!samples.is_array() || samples.empty())
    fail(ErrorCode::unreadable,
         "has no samples: inspect-ai keeps them unless it is run with --no-log-samples");
  const std::string task = text_member(source.head, "eval.task");
  if (const json* status = find_member(source.head, "status");
      status && status->is_string() && *status != "success")
    out.settings["status"] = status->get<std::string>();
  out.same_key = SameKey::repeat;
  std::vector<std::string> metrics;
  for (const auto& sample : samples)
    if (const json* scores = find_member(sample, "scores"); scores && scores->is_object())
      for (const auto& score : scores->items())
        if (std::find(metrics.begin(), metrics.end(), score.key()) == metrics.end())
          metrics.push_back(score.key());
  out.metric = choose_metric(metrics, request);
  for (std::size_t i = 0; i < samples.size(); ++i)
    in_context(str("samples[", i, "]"), [&] {
      const json& sample = samples[i];
      const json* scores = find_member(sample, "scores");
      // A sample that ended in an error has none, and stands on one side alone.
      if (!scores || !scores->is_object() || !scores->contains(out.metric)) return;
      Answer answer;
      answer.task = task;
      answer.key = text_member(sample, "id");
      answer.text = short_key(json_text(need_member(sample, "input")));
      answer.same = answer.text;
      answer.group = group_of(sample, request);
      answer.score = value_of((*scores)[out.metric], out.metric);
      answer.where = str(printable(source.path.filename().string(), 200), ", samples[", i, "]");
      add_answer(out, std::move(answer));
    });
  const json* results = find_member(source.head, "results.scores");
  if (!results || !results->is_array()) return;
  for (const auto& one : *results) {
    const json* name = find_member(one, "name");
    if (!name || *name != out.metric) continue;
    for (const char* metric : {"metrics.accuracy.value", "metrics.mean.value"})
      if (const json* mean = find_member(one, metric); mean && mean->is_number())
        out.own_means.push_back({task, mean->get<double>(), 1e-6});
  }
}

}  // namespace

Format inspect_ai_format() {
  return {
      {"inspect-ai", "….json", "id; epochs are averaged", "scores.NAME.value: C 1, P ½, I, N 0"},
      [](const Source& s) { return s.has("eval") && s.has("samples"); },
      read_inspect_ai};
}

}  // namespace kvatlas::calibrate
