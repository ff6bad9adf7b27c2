// SPDX-License-Identifier: Apache-2.0
// EvalPlus (HumanEval+ and MBPP+): …eval_results.json, a list of attempts for each task.
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

double passed(const json& attempt, const char* member) {
  const json& status = need_member(attempt, member);
  // Before version 0.2 it stood first in a list.
  const json& word = status.is_array() && !status.empty() ? status.front() : status;
  if (!word.is_string())
    fail(ErrorCode::unreadable, quoted(member), " is ", printable(word.dump(), 40),
         ", expected a word such as 'pass'");
  return word == "pass" ? 1 : 0;
}

void read_evalplus(const Source& source, const ReadRequest& request, ResultFile& out) {
  const json& tasks = need_member(source.head, "eval");
  if (!tasks.is_object() || tasks.empty())
    fail(ErrorCode::unreadable, "'eval' is no JSON object of tasks");
  const auto& first = tasks.begin().value();
  const bool has_plus =
      first.is_array() && !first.empty() && find_member(first.front(), "plus_status");
  if (!request.metric.empty())
    out.metric = choose_metric(
        has_plus ? std::vector<std::string>{"base", "plus"} : std::vector<std::string>{"base"},
        request);
  else
    out.metric = has_plus ? "plus" : "base";
  out.same_key = SameKey::repeat;
  bool once_each = true;
  for (const auto& [id, attempts] : tasks.items())
    in_context(quoted(id), [&, &id = id, &attempts = attempts] {
      if (!attempts.is_array()) fail(ErrorCode::unreadable, "is no list of attempts");
      once_each = once_each && attempts.size() == 1;
      for (std::size_t i = 0; i < attempts.size(); ++i) {
        Answer answer;
        answer.task = "evalplus";
        answer.key = answer.text = id;
        answer.group = group_of(attempts[i], request);
        answer.score = passed(attempts[i], "base_status");
        if (out.metric == "plus") answer.score *= passed(attempts[i], "plus_status");
        answer.where = str(printable(source.path.filename().string(), 200), ", ", quoted(id));
        add_answer(out, std::move(answer));
      }
    });
  const json* mean = find_member(source.head, str("pass_at_k.", out.metric, ".pass@1"));
  if (mean && mean->is_number()) out.own_means.push_back({"evalplus", mean->get<double>(), 1e-6});
}

}  // namespace

Format evalplus_format() {
  return {{"evalplus", "…eval_results.json", "task_id; attempts are averaged",
           "base_status, plus_status"},
          [](const Source& s) { return s.has("eval") && s.has("hash"); },
          read_evalplus};
}

}  // namespace kvatlas::calibrate
