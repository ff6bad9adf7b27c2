// SPDX-License-Identifier: Apache-2.0
// LongBench, what its pred.py writes: pred/MODEL/DATASET.jsonl. The lines have no ids, and several
// processes write them in any order, so a line is told by its answers and its length. result.json
// beside them has the means.
#include "data/longbench.hpp"

#include "base/json_text.hpp"
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

void read_longbench(const Source& source, const ReadRequest& request, ResultFile& out) {
  const std::string task = source.path.stem().string();
  out.same_key = SameKey::ambiguous;
  for_each_line(source, [&](const json& line, const std::string& where) {
    Answer answer;
    answer.task = task;
    answer.key =
        short_key(str(json_text(need_member(line, "answers")), '/', text_member(line, "length")));
    answer.group = group_of(line, request);
    const auto scored = recompute(task, text_member(line, "pred"), texts_member(line, "answers"),
                                  texts_member(line, "all_classes"), request);
    out.metric = scored.metric;
    answer.score = scored.score;
    answer.where = where;
    add_answer(out, std::move(answer));
  });
  const json means = neighbour(source.path.parent_path() / "result.json");
  if (const json* mean = find_member(means, task); mean && mean->is_number())
    out.own_means.push_back({task, mean->get<double>() / 100, 1e-4});
}

}  // namespace

Format longbench_format() {
  return {{"longbench", "pred/MODEL/DATASET.jsonl", "answers and length",
           "recomputed from pred, answers and all_classes"},
          [](const Source& s) { return s.has("pred") && s.has("answers") && s.has("length"); },
          read_longbench};
}

}  // namespace kvatlas::calibrate
