// SPDX-License-Identifier: Apache-2.0
// RULER, what its call_api.py writes: pred/TASK.jsonl. Its evaluate.py scores them; so do we.
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

void read_ruler(const Source& source, const ReadRequest& request, ResultFile& out) {
  const std::string task = source.path.stem().string();
  for_each_line(source, [&](const json& line, const std::string& where) {
    Answer answer;
    answer.task = task;
    const std::string input = text_member(line, "input");
    answer.key = str(text_member(line, "index"), '/', short_key(input));
    answer.text = short_key(input);
    answer.group = group_of(line, request);
    const auto scored =
        recompute(task, text_member(line, "pred"), texts_member(line, "outputs"), {}, request);
    out.metric = scored.metric;
    answer.score = scored.score;
    answer.where = where;
    add_answer(out, std::move(answer));
  });
}

}  // namespace

Format ruler_format() {
  return {{"ruler", "pred/TASK.jsonl", "index and input", "recomputed from pred and outputs"},
          [](const Source& s) { return s.has("pred") && s.has("outputs") && s.has("input"); },
          read_ruler};
}

}  // namespace kvatlas::calibrate
