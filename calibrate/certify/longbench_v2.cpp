// SPDX-License-Identifier: Apache-2.0
// LongBench v2, what its pred.py writes: results/MODEL.jsonl, with the context left out.
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

void read_longbench_v2(const Source& source, const ReadRequest& request, ResultFile& out) {
  out.metric = choose_metric({"judge"}, request);
  for_each_line(source, [&](const json& line, const std::string& where) {
    Answer answer;
    answer.task = "longbench-v2";
    answer.key = text_member(line, "_id");
    answer.group = group_of(line, request);
    answer.score = score_of(need_member(line, "judge"), "judge");
    answer.where = where;
    add_answer(out, std::move(answer));
  });
}

}  // namespace

Format longbench_v2_format() {
  return {{"longbench-v2", "results/MODEL.jsonl", "_id", "judge"},
          [](const Source& s) { return s.has("_id") && s.has("judge"); },
          read_longbench_v2};
}

}  // namespace kvatlas::calibrate
