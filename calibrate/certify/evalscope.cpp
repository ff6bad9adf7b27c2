// SPDX-License-Identifier: Apache-2.0
// EvalScope: reviews/MODEL/DATASET_SUBSET.jsonl, a line a sample. Repeats of a prompt are samples
// of their own with one group_id.
#include "base/json_text.hpp"
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

void read_evalscope(const Source& source, const ReadRequest& request, ResultFile& out) {
  const std::string task = source.path.stem().string();
  const auto metrics_of = [](const json& line) {
    std::vector<std::string> names;
    const json& value = need_member(line, "sample_score.score.value");
    if (!value.is_object())
      fail(ErrorCode::unreadable, "'sample_score.score.value' is no JSON object");
    for (const auto& member : value.items()) names.push_back(member.key());
    return names;
  };
  in_context("line 1", [&] {
    const json* main = find_member(source.head, "sample_score.score.main_score_name");
    const bool named = request.metric.empty() && main && main->is_string();
    out.metric = named ? main->get<std::string>() : choose_metric(metrics_of(source.head), request);
  });
  const auto use = [&](const json& line, const std::string& where) {
    Answer answer;
    answer.task = task;
    answer.key = text_member(line, "index");
    // Since 1.6 the prompt is what the messages begin with, before the model's first.
    json asked = json::array();
    if (const json* input = find_member(line, "input"); input && !input->empty())
      asked.push_back(*input);
    if (const json* messages = find_member(line, "messages"); messages && messages->is_array())
      for (const auto& message : *messages) {
        const json* role = find_member(message, "role");
        if (role && *role == "assistant") break;
        asked.push_back(find_member(message, "content") ? message["content"] : json());
      }
    if (!asked.empty()) answer.text = short_key(json_text(asked));
    answer.group = group_of(line, request);
    if (find_member(line, "sample_score.group_id"))
      answer.text = text_member(line, "sample_score.group_id");
    const json& value = need_member(line, "sample_score.score.value");
    // A sample that could not be scored has no value, and stands on one side alone.
    if (!value.is_object() || !value.contains(out.metric)) return;
    answer.score = score_of(value[out.metric], out.metric);
    answer.where = where;
    add_answer(out, std::move(answer));
  };
  for_each_line(source, use);
}

}  // namespace

Format evalscope_format() {
  return {{"evalscope", "reviews/MODEL/DATASET_SUBSET.jsonl", "index", "sample_score.score.value"},
          [](const Source& s) { return s.has("index") && s.has("sample_score"); },
          read_evalscope};
}

}  // namespace kvatlas::calibrate
