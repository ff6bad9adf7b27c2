// SPDX-License-Identifier: Apache-2.0
// The table of formats, and what their readers share.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "base/plain_text.hpp"
#include "calibrate/certify/formats_impl.hpp"
#include "data/field_tasks.hpp"
#include "data/longbench.hpp"
#include "data/scores.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr std::size_t kLargestFile = std::size_t{4} << 30;
// A document becomes a tree of several times its size.
constexpr std::size_t kLargestDocument = std::size_t{512} << 20;
constexpr std::size_t kLongestResultLine = std::size_t{64} << 20;
constexpr std::size_t kMostFiles = 10'000;

const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats = {
      answered_prompts_format(), lm_eval_format(),  lm_eval_totals_format(),
      kvpress_format(),          ruler_format(),    longbench_format(),
      longbench_v2_format(),     helmet_format(),   inspect_ai_format(),
      opencompass_format(),      evalplus_format(), evalscope_format()};
  return kFormats;
}

std::string_view first_line(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// The file's shape and head. Error(unreadable) if it is none of them.
Source source_of(const std::filesystem::path& path, std::string_view text) {
  Source source{path, text, Source::Shape::lines, {}, {}};
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) fail(ErrorCode::unreadable, "the file is empty");
  if (text.starts_with("PK\x03\x04"))
    fail(ErrorCode::unreadable,
         "is a zip file, as inspect-ai's .eval; this writes the .json that is read: inspect log "
         "convert ",
         printable(path.string(), 400), " --to json --output-dir logs-json");
  if (text[begin] != '{' && text[begin] != '[') {
    source.shape = Source::Shape::table;
    CsvReader(path, text).next(source.columns);
    return source;
  }
  const std::string_view line = first_line(text);
  if (line.size() <= kLongestResultLine) {
    try {
      source.head = parse_json(line, kDeepestResult);
    } catch (const Error&) {
      source.head = nullptr;
    }
  }
  const auto rest = static_cast<std::size_t>(line.data() - text.data()) + line.size();
  const bool alone = text.find_first_not_of(" \t\r\n", rest) == text.npos;
  if (!source.head.is_null()) {
    source.shape = alone ? Source::Shape::document : Source::Shape::lines;
    return source;
  }
  source.shape = Source::Shape::document;
  if (text.size() > kLargestDocument)
    fail(ErrorCode::unreadable, "a JSON document of ", text.size(), " bytes, expected at most ",
         kLargestDocument);
  source.head = parse_json(text, kDeepestResult);
  return source;
}

/// What a path is: named by the user, or found in a folder, where totals are looked for last.
enum class Found { named, answers, totals };

const Format* find_format(const Source& source, const ReadRequest& request, Found found) {
  for (const auto& format : formats()) {
    if (!request.format.empty() && format.info.name != request.format) continue;
    if (found != Found::named && format.totals != (found == Found::totals)) continue;
    if (format.knows(source)) return &format;
  }
  return nullptr;
}

std::string names_of_formats() {
  return join(formats(), ", ", [](const Format& format) { return format.info.name; });
}

std::string what_is_there(const Source& source) {
  std::vector<std::string> names = source.columns;
  if (source.head.is_object())
    for (const auto& member : source.head.items()) names.push_back(member.key());
  if (names.empty()) return "nothing that has a name";
  const bool more = names.size() > 8;
  if (more) names.resize(8);
  return join(names, ", ", [](const std::string& name) { return quoted(name, 40); }) +
         (more ? ", …" : "");
}

/// The file of a known format; none if it is of none and was found in a folder.
std::optional<ResultFile> read_file(const std::filesystem::path& path, const ReadRequest& request,
                                    Found found) {
  const bool in_folder = found != Found::named;
  const MappedFile file = MappedFile::open(path);
  return in_context(printable(path.string(), 400), [&]() -> std::optional<ResultFile> {
    const auto bytes = file.bytes();
    if (bytes.size() > kLargestFile)
      fail(ErrorCode::unreadable, "has ", bytes.size(), " bytes, expected at most ", kLargestFile);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    Source source;
    try {
      source = source_of(path, text);
    } catch (const Error&) {
      if (in_folder) return std::nullopt;
      throw;
    }
    const Format* format = find_format(source, request, found);
    if (!format && in_folder) return std::nullopt;
    if (!format)
      fail(ErrorCode::unreadable,
           request.format.empty() ? "of no known format" : "not of the format " + request.format,
           ": it has ", what_is_there(source), "; there are ", names_of_formats());
    ResultFile out;
    out.path = path.string();
    out.format = format->info.name;
    format->read(source, request, out);
    file.require_intact();
    if (out.answers.empty() && out.totals.empty()) fail(ErrorCode::unreadable, "holds no scores");
    return out;
  });
}

bool may_hold_results(const std::filesystem::path& path) {
  const auto extension = path.extension();
  if (extension != ".json" && extension != ".jsonl" && extension != ".csv") return false;
  // OpenCompass's predictions are read with the results of the same name.
  std::error_code error;
  const auto twin = twin_in(path, "predictions", "results");
  return twin.empty() || !std::filesystem::exists(twin, error);
}

}  // namespace

std::span<const FormatInfo> result_formats() {
  static const auto kInfos = [] {
    std::vector<FormatInfo> infos;
    for (const auto& format : formats()) infos.push_back(format.info);
    return infos;
  }();
  return kInfos;
}

std::vector<ResultFile> read_results(const std::filesystem::path& path,
                                     const ReadRequest& request) {
  const auto infos = result_formats();
  if (!request.format.empty() && std::none_of(infos.begin(), infos.end(), [&](const auto& info) {
        return info.name == request.format;
      }))
    fail(ErrorCode::usage, "there is no format ", quoted(request.format), "; there are ",
         names_of_formats());
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    std::vector<ResultFile> one;
    one.push_back(*read_file(path, request, Found::named));
    return one;
  }
  std::vector<std::filesystem::path> paths;
  for (std::filesystem::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_regular_file(error) && may_hold_results(at->path())) paths.push_back(at->path());
    if (paths.size() > kMostFiles)
      fail(ErrorCode::unreadable, printable(path.string(), 400), ": has more than ", kMostFiles,
           " files: name the folder of one run");
  }
  if (error)
    fail(ErrorCode::unreadable, printable(path.string(), 400),
         ": cannot be read: ", error.message());
  std::sort(paths.begin(), paths.end());
  std::vector<ResultFile> out;
  for (const auto found : {Found::answers, Found::totals}) {
    if (!out.empty()) break;
    for (const auto& one : paths)
      if (auto file = read_file(one, request, found)) out.push_back(std::move(*file));
  }
  if (out.empty())
    fail(ErrorCode::unreadable, printable(path.string(), 400),
         ": the folder holds no result file of a known format; there are ", names_of_formats());
  for (const auto& file : out)
    if (file.format != out.front().format)
      fail(ErrorCode::unreadable, printable(path.string(), 400), ": holds files of ",
           out.front().format, " and of ", file.format, ": choose one with --format");
  return out;
}

void add_answer(ResultFile& file, Answer answer) {
  constexpr std::size_t kMostAnswers = 2'000'000;
  if (file.answers.size() == kMostAnswers)
    fail(ErrorCode::unreadable, "has more than ", kMostAnswers, " answers");
  file.answers.push_back(std::move(answer));
}

std::string short_key(std::string_view text) {
  if (text.size() <= 48) return std::string(text);
  Fnv1a forward, backward;
  forward.add(text);
  std::string turned(text.rbegin(), text.rend());
  backward.add(turned);
  return str(forward.hex(), backward.hex(), '/', text.size());
}

void for_each_line(const Source& source,
                   const std::function<void(const json&, const std::string&)>& use) {
  std::string_view rest = source.text;
  const std::string name = source.path.filename().string();
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    in_context(str("line ", number), [&] {
      if (line.size() > kLongestResultLine)
        fail(ErrorCode::unreadable, "has ", line.size(), " bytes, expected at most ",
             kLongestResultLine);
      const json object = parse_json(line, kDeepestResult);
      if (!object.is_object()) fail(ErrorCode::unreadable, "not a JSON object");
      use(object, str(printable(name, 200), ':', number));
    });
  }
}

const json* find_member(const json& object, std::string_view path) {
  const json* at = &object;
  while (at->is_object()) {
    // A whole name first: some have dots themselves.
    if (const auto whole = at->find(std::string(path)); whole != at->end())
      return whole->is_null() ? nullptr : &*whole;
    const auto dot = path.find('.');
    if (dot == path.npos) return nullptr;
    const auto part = at->find(std::string(path.substr(0, dot)));
    if (part == at->end()) return nullptr;
    at = &*part;
    path.remove_prefix(dot + 1);
  }
  return nullptr;
}

const json& need_member(const json& object, std::string_view path) {
  const json* found = find_member(object, path);
  if (!found) fail(ErrorCode::unreadable, quoted(path), " is missing");
  return *found;
}

namespace {

std::string text_of(const json& value, std::string_view path) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  fail(ErrorCode::unreadable, quoted(path), " is neither a text nor a number");
}

}  // namespace

std::string text_member(const json& object, std::string_view path) {
  return text_of(need_member(object, path), path);
}

std::vector<std::string> texts_member(const json& object, std::string_view path) {
  const json* found = find_member(object, path);
  if (!found) return {};
  if (!found->is_array()) return {text_of(*found, path)};
  std::vector<std::string> texts;
  for (const auto& one : *found) texts.push_back(text_of(one, path));
  return texts;
}

std::string group_of(const json& object, const ReadRequest& request) {
  if (request.group.empty()) return {};
  const json* found = find_member(object, request.group);
  if (!found)
    fail(ErrorCode::usage, "has no member ", quoted(request.group), ", which --group names");
  return short_key(found->is_string() ? found->get<std::string>() : found->dump());
}

double score_of(const json& value, const std::string& metric) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number()) {
    const double score = value.get<double>();
    if (std::isfinite(score)) return score;
  }
  if (value.is_array() || value.is_object())
    fail(ErrorCode::unsupported, quoted(metric), " is a ",
         value.is_array() ? "list" : "JSON object",
         ", as those of perplexities and BLEU, which are made over all texts at once: no text has "
         "a score of its own");
  fail(ErrorCode::unreadable, quoted(metric), " is ", printable(value.dump(), 40),
       ", expected a number");
}

namespace {

std::string choose(const std::vector<std::string>& there, const std::string& asked,
                   const char* what, const char* option) {
  if (!asked.empty()) {
    if (std::find(there.begin(), there.end(), asked) != there.end()) return asked;
    fail(ErrorCode::usage, "there is no ", what, " ", quoted(asked), "; there are ",
         there.empty() ? "none" : join(there, ", ", [](const auto& one) { return quoted(one); }));
  }
  if (there.size() == 1) return there.front();
  if (there.empty()) fail(ErrorCode::unreadable, "names no ", what);
  fail(ErrorCode::usage, "has more than one ", what, ": choose one with ", option, " (",
       join(there, ", ", [](const auto& one) { return printable(one); }), ")");
}

}  // namespace

std::string choose_metric(const std::vector<std::string>& there, const ReadRequest& request) {
  return choose(there, request.metric, "metric", "--metric");
}

std::string choose_filter(const std::vector<std::string>& there, const ReadRequest& request) {
  return choose(there, request.filter, "filter", "--filter");
}

Recomputed recompute(const std::string& task, const std::string& generated,
                     std::vector<std::string> answers, std::vector<std::string> all_classes,
                     const ReadRequest& request) {
  if (answers.empty()) fail(ErrorCode::unreadable, "has no answers to score by");
  data::Prompt prompt;
  prompt.task = task;
  prompt.answers = std::move(answers);
  prompt.all_classes = std::move(all_classes);
  prompt.metric = request.metric;
  if (prompt.metric.empty()) {
    const data::FieldTask* field = data::field_task(task);
    if (field) {
      prompt.metric = field->metric;
      prompt.language = field->language;
    } else if (!data::longbench_dataset(task)) {
      fail(ErrorCode::usage, "the task ", quoted(task),
           " is not known, so how its answers are scored is not either: name it with --metric "
           "(found, any, f1, rouge_l, exact, choice, …: docs/tasks.md)");
    }
  }
  const double score = data::score(prompt, generated);
  return {data::metric_name(prompt), score};
}

json neighbour(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  try {
    return parse_json(read_text_file(path, std::size_t{16} << 20), kDeepestResult);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace kvatlas::calibrate
