// SPDX-License-Identifier: Apache-2.0
// kvpress, what its evaluate.py writes: predictions.csv without contexts and ids, with config.yaml
// and metrics.json beside it. Rows are those of the dataset in its order, so they are told by their
// places, if both runs took the same rows.
#include <algorithm>

#include "base/json_text.hpp"
#include "calibrate/certify/formats_impl.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

/// "key: value" of each line of config.yaml that has no indent.
std::map<std::string, std::string> yaml_settings(const std::filesystem::path& path) {
  std::map<std::string, std::string> out;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return out;
  const std::string text =
      in_context(printable(path.string(), 400), [&] { return read_text_file(path, 1 << 20); });
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto colon = line.find(':');
    if (colon == line.npos || colon == 0 || line.front() == ' ' || line.front() == '#') continue;
    auto value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(" '\""), value.size()));
    while (!value.empty() && std::string_view(" '\"\r").find(value.back()) != value.npos)
      value.remove_suffix(1);
    out[std::string(line.substr(0, colon))] = std::string(value);
  }
  return out;
}

/// Which rows a run took of which data.
constexpr const char* kOfTheRows[] = {"dataset", "data_dir", "fraction", "seed"};

void read_kvpress(const Source& source, const ReadRequest& request, ResultFile& out) {
  const auto folder = source.path.parent_path();
  const auto config = yaml_settings(folder / "config.yaml");
  for (const char* name : kOfTheRows)
    if (config.contains(name)) out.settings[name] = config.at(name);
  CsvReader csv(source.path, source.text);
  std::vector<std::string> row;
  csv.next(row);
  const std::vector<std::string> columns = row;
  const auto place = [&](std::string_view name) {
    return static_cast<std::size_t>(std::find(columns.begin(), columns.end(), name) -
                                    columns.begin());
  };
  const std::size_t predicted = place("predicted_answer"), task = place("task"),
                    question = place("question"), classes = place("all_classes"),
                    answers = std::min(place("answer"), place("answers")),
                    group = place(request.group);
  if (answers == columns.size())
    fail(ErrorCode::unreadable, "line 1: has no column 'answer' and none 'answers'");
  if (!request.group.empty() && group == columns.size())
    fail(ErrorCode::usage, "has no column ", quoted(request.group), ", which --group names");
  const auto cell = [&](std::size_t column) {
    return column < row.size() ? row[column] : std::string();
  };
  for (std::int64_t number = 0; csv.next(row); ++number)
    in_context(csv.where(), [&] {
      if (row.size() != columns.size())
        fail(ErrorCode::unreadable, "has ", row.size(), " fields, expected ", columns.size(),
             row.size() < columns.size() ? ": the file may be cut" : "");
      Answer answer;
      answer.task = task < columns.size() ? cell(task) : "kvpress";
      answer.key = std::to_string(number);
      // With query_aware the question stands in the context, which is not written.
      answer.same = short_key(str(cell(answers), '\n', answer.task));
      if (!cell(question).empty()) answer.same += '\n' + short_key(cell(question));
      if (!request.group.empty()) answer.group = short_key(cell(group));
      const auto scored = recompute(
          answer.task, cell(predicted), python_texts(cell(answers)),
          cell(classes).empty() ? std::vector<std::string>{} : python_texts(cell(classes)),
          request);
      out.metric = scored.metric;
      answer.score = scored.score;
      answer.where = csv.where();
      add_answer(out, std::move(answer));
    });
  const json means = neighbour(folder / "metrics.json");
  if (means.is_number() && !out.answers.empty())
    out.own_means.push_back({out.answers.front().task, means.get<double>() / 100, 1e-4});
  if (!means.is_object()) return;
  for (const auto& [name, of_task] : means.items())
    if (const json* mean = find_member(of_task, "string_match"); mean && mean->is_number())
      out.own_means.push_back({name, mean->get<double>() / 100, 1e-4});
}

}  // namespace

Format kvpress_format() {
  return {{"kvpress", "predictions.csv, config.yaml",
           "the row, if question, answer, task, dataset, fraction and seed agree",
           "recomputed from predicted_answer"},
          [](const Source& s) {
            return std::find(s.columns.begin(), s.columns.end(), "predicted_answer") !=
                   s.columns.end();
          },
          read_kvpress};
}

}  // namespace kvatlas::calibrate
