// SPDX-License-Identifier: Apache-2.0
// lm-evaluation-harness, what --log_samples writes: samples_TASK_DATE.jsonl, a line a document and
// filter, and the totals of results_DATE.json. Written by lm_eval 0.4 (`doc_hash` and `prompt_hash`
// since 0.4.3).
#include <algorithm>
#include <map>

#include "base/json_text.hpp"
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr const char* kNoMetrics[] = {
    "doc_id", "doc",     "target",   "arguments",   "resps",       "filtered_resps",
    "filter", "metrics", "doc_hash", "prompt_hash", "target_hash", "gen_prefix"};

/// TASK and DATE of samples_TASK_DATE.jsonl.
struct SampleFileName {
  std::string task, date;
};
SampleFileName parts_of(const std::filesystem::path& path) {
  std::string name = path.stem().string();
  constexpr std::string_view kPrefix = "samples_";
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  // _2026-11-28T12-30-00.123456
  const auto date = name.rfind('_');
  if (date == name.npos || name.find('T', date) != date + 11) return {name, {}};
  return {name.substr(0, date), name.substr(date + 1)};
}

std::vector<std::string> metrics_of(const json& line) {
  if (line.contains("metrics")) return texts_member(line, "metrics");
  std::vector<std::string> names;
  for (const auto& member : line.items())
    if (std::none_of(std::begin(kNoMetrics), std::end(kNoMetrics),
                     [&](const char* known) { return member.key() == known; }))
      names.push_back(member.key());
  return names;
}

std::string filter_of(const json& line) {
  return find_member(line, "filter") ? text_member(line, "filter") : "none";
}

/// The mean that results_DATE.json gives for a metric and filter; none if it does not.
const json* total_of(const json& results, const std::string& task, const std::string& metric,
                     const std::string& filter) {
  const json* of_task = results.is_object() && results.contains("results") &&
                                results["results"].is_object() && results["results"].contains(task)
                            ? &results["results"][task]
                            : nullptr;
  if (!of_task || !of_task->is_object()) return nullptr;
  const auto found = of_task->find(str(metric, ',', filter));
  return found == of_task->end() || !found->is_number() ? nullptr : &*found;
}

void read_lm_eval(const Source& source, const ReadRequest& request, ResultFile& out) {
  const SampleFileName sample = parts_of(source.path);
  out.metric =
      in_context("line 1", [&] { return choose_metric(metrics_of(source.head), request); });
  std::map<std::string, ResultFile> by_filter;
  const auto use = [&](const json& line, const std::string& where) {
    Answer answer;
    answer.task = sample.task;
    answer.key = text_member(line, "doc_id");
    if (find_member(line, "doc_hash")) answer.key += '/' + text_member(line, "doc_hash");
    if (find_member(line, "prompt_hash")) answer.same = text_member(line, "prompt_hash");
    answer.text = answer.same.empty() && line.contains("arguments")
                      ? short_key(json_text(line["arguments"]))
                      : answer.same;
    answer.group = group_of(line, request);
    answer.score = score_of(need_member(line, out.metric), out.metric);
    answer.where = where;
    add_answer(by_filter[filter_of(line)], std::move(answer));
  };
  for_each_line(source, use);
  std::vector<std::string> filters;
  for (const auto& [name, file] : by_filter) filters.push_back(name);
  const std::string filter = choose_filter(filters, request);
  out.answers = std::move(by_filter[filter].answers);
  if (filters.size() > 1) out.metric += ',' + filter;
  const json results = neighbour(source.path.parent_path() / str("results_", sample.date, ".json"));
  const std::string name = out.metric.substr(0, out.metric.find(','));
  if (const json* total = total_of(results, sample.task, name, filter))
    out.own_means.push_back({sample.task, total->get<double>(), 1e-6});
}

void read_totals(const Source& source, const ReadRequest& request, ResultFile& out) {
  const json& results = need_member(source.head, "results");
  const json& counts = need_member(source.head, "n-samples");
  std::vector<std::string> names, filters;
  const auto add = [](std::vector<std::string>& to, const std::string& name) {
    if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
  };
  const auto each = [&](const auto& use) {
    for (const auto& [task, of_task] : results.items()) {
      if (!of_task.is_object() || !find_member(counts, task)) continue;
      for (const auto& [name, value] : of_task.items()) {
        const auto comma = name.find(',');
        if (comma == name.npos || name.substr(0, comma).ends_with("_stderr")) continue;
        use(task, name.substr(0, comma), name.substr(comma + 1), value);
      }
    }
  };
  each([&](const auto&, const std::string& metric, const std::string& filter, const json&) {
    add(names, metric);
    add(filters, filter);
  });
  out.metric = choose_metric(names, request);
  const std::string filter = choose_filter(filters, request);
  each([&](const std::string& task, const std::string& metric, const std::string& of_filter,
           const json& value) {
    if (metric != out.metric || of_filter != filter) return;
    const json* count = find_member(counts[task], "effective");
    if (!count || !count->is_number_unsigned() || count->get<std::uint64_t>() > 1'000'000'000)
      fail(ErrorCode::unreadable, "'n-samples' does not say how many there are of ", quoted(task));
    out.totals.push_back({task, score_of(value, metric), count->get<std::int64_t>()});
  });
  if (filters.size() > 1) out.metric += ',' + filter;
}

}  // namespace

Format lm_eval_format() {
  return {{"lm-eval", "samples_TASK_DATE.jsonl", "doc_id and doc_hash; prompt_hash must agree",
           "the metrics that a line names"},
          [](const Source& s) {
            return s.has("doc_id") && (s.has("filtered_resps") || s.has("resps"));
          },
          read_lm_eval};
}

Format lm_eval_totals_format() {
  return {{"lm-eval-totals", "results_DATE.json", "nothing: totals alone",
           "means of scores that are 0 or 1"},
          [](const Source& s) { return s.has("results") && s.has("n-samples"); },
          read_totals,
          true};
}

}  // namespace kvatlas::calibrate
