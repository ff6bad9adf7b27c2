// SPDX-License-Identifier: Apache-2.0
// Prompts as prompts files have them (docs/tasks.md), each with what was generated: each is scored
// as `evaluate` would score it. kvatlas's own package writes such files.
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "calibrate/certify/formats_impl.hpp"
#include "data/prompts.hpp"
#include "data/scores.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr const char* kGenerated = "generated";

/// Whether a line says what its prompt is, which scoring does not ask.
bool has_prompt(const json& line) {
  return line.contains("text") || line.contains("tokens") || line.contains("context");
}

void read_answered_prompts(const Source& source, const ReadRequest& request, ResultFile& out) {
  out.metric = request.metric;
  for_each_line(source, [&](const json& given, const std::string& where) {
    json line = given;
    line.erase(kGenerated);
    const bool told = has_prompt(line);
    if (!told) line["text"] = "not told";
    if (!request.metric.empty()) line["metric"] = request.metric;
    auto prompts = data::parse_line(json_text(line), {where, {}}).prompts;
    if (prompts.size() != 1)
      fail(ErrorCode::unreadable, "is of ", prompts.size(), " prompts, expected one");
    const data::Prompt& prompt = prompts.front();
    if (prompt.answers.empty()) fail(ErrorCode::unreadable, "has no answers to score by");
    Answer answer;
    answer.task = prompt.task.empty() ? "prompts" : prompt.task;
    answer.key = prompt.id;
    answer.same = data::metric_name(prompt) + (told ? short_key(prompt.as_text()) : "") +
                  short_key(json_text(json(prompt.answers)));
    answer.text = prompt.group.empty() ? prompt.id : prompt.group;
    answer.group = group_of(given, request);
    answer.score = data::score(prompt, text_member(given, kGenerated));
    answer.where = where;
    add_answer(out, std::move(answer));
  });
}

}  // namespace

Format answered_prompts_format() {
  return {{"kvatlas", "….jsonl", "id", "as evaluate scores generated"},
          [](const Source& s) { return s.has(kGenerated) && s.has("answers") && s.has("id"); },
          read_answered_prompts};
}

}  // namespace kvatlas::calibrate
