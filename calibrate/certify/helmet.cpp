// SPDX-License-Identifier: Apache-2.0
// HELMET, what its eval.py writes: a JSON document with the answers under `data` and the means, in
// hundredths, under `averaged_metrics`. Answers that failed are missing.
#include <algorithm>

#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

std::string id_of(const json& answer) {
  for (const char* member : {"id", "qid", "question"})
    if (find_member(answer, member)) return short_key(text_member(answer, member));
  fail(ErrorCode::unreadable, "has neither 'id' nor 'qid' nor 'question'");
}

void read_helmet(const Source& source, const ReadRequest& request, ResultFile& out) {
  const json& data = need_member(source.head, "data");
  const json& means = need_member(source.head, "averaged_metrics");
  if (!data.is_array() || !means.is_object())
    fail(ErrorCode::unreadable, "'data' is no list, or 'averaged_metrics' no JSON object");
  std::vector<std::string> metrics;
  for (const auto& member : means.items())
    if (!member.key().ends_with("_len")) metrics.push_back(member.key());
  out.metric = choose_metric(metrics, request);
  const json* dataset = find_member(source.head, "args.datasets");
  const std::string task =
      dataset && dataset->is_string() ? dataset->get<std::string>() : source.path.stem().string();
  for (std::size_t i = 0; i < data.size(); ++i)
    in_context(str("data[", i, "]"), [&] {
      Answer answer;
      answer.task = task;
      answer.key = id_of(data[i]);
      if (find_member(data[i], "input_text"))
        answer.text = short_key(text_member(data[i], "input_text"));
      answer.group = group_of(data[i], request);
      answer.score = score_of(need_member(data[i], out.metric), out.metric);
      answer.where = str(printable(source.path.filename().string(), 200), ", data[", i, "]");
      add_answer(out, std::move(answer));
    });
  if (const json* mean = find_member(means, out.metric); mean && mean->is_number())
    out.own_means.push_back({task, mean->get<double>() / 100, 1e-6});
}

}  // namespace

Format helmet_format() {
  return {{"helmet", "DATASET_….json", "id, qid or question", "members of data[], 0 to 1"},
          [](const Source& s) { return s.has("data") && s.has("averaged_metrics"); },
          read_helmet};
}

}  // namespace kvatlas::calibrate
