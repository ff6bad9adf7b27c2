// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/describe.hpp"

#include <charconv>

#include <nlohmann/json.hpp>

#include "analyzer/config/config_files.hpp"
#include "analyzer/profile/header_impl.hpp"
#include "base/json_text.hpp"
#include "base/plain_text.hpp"
#include "base/share_code.hpp"

namespace kvatlas::profile {
namespace {

using nlohmann::ordered_json;

ordered_json described(const KeepRule& rule, const CaptureSettings& settings) {
  ordered_json out = {{"label", rule.label}};
  switch (rule.method) {
    case KeepRule::Method::streaming:
      out.update(ordered_json{{"method", "streaming"},
                              {"initial", rule.proximity.initial},
                              {"recent", rule.proximity.recent}});
      break;
    case KeepRule::Method::snapkv:
    case KeepRule::Method::dynamickv:
      out.update(
          ordered_json{{"method", rule.method == KeepRule::Method::snapkv ? "snapkv" : "dynamickv"},
                       {"kind", rule.kind},
                       {"budget", rule.budget}});
      break;
    case KeepRule::Method::h2o:
      out.update(ordered_json{{"method", "h2o"}, {"budget", rule.budget}});
      break;
    case KeepRule::Method::lagkv:
      out.update(ordered_json{{"method", "lagkv"},
                              {"sink", settings.sink},
                              {"lag", rule.lag},
                              {"keep", rule.keep},
                              {"variant", rule.label.substr(rule.label.rfind('=') + 1)}});
      break;
  }
  return out;
}

/// What the settings come to: the numbers that code which takes the statistics goes by.
ordered_json numbers_of(const CaptureSettings& s) {
  ordered_json proximities = ordered_json::array(), kinds = ordered_json::array(),
               selections = ordered_json::array();
  for (const auto& [initial, recent] : s.proximities) proximities.push_back({initial, recent});
  for (const auto& kind : s.window_kinds)
    kinds.push_back({{"window", kind.window},
                     {"kernel", kind.kernel},
                     {"pooling", kind.pooling == Pooling::average ? "avg" : "max"}});
  if (s.kept)
    for (const KeepRule& rule : s.selections()) selections.push_back(described(rule, s));
  return {{"proximities", proximities},   {"window_kinds", kinds},
          {"budgets", s.budgets},         {"selections", selections},
          {"mass_rows", s.mass_rows},     {"js_rows", s.js_rows},
          {"held_rows", s.held_rows()},   {"last_rows", s.last_rows()},
          {"generated", s.generated},     {"skip_queries", s.skip_queries},
          {"map_samples", s.map_samples}, {"map_blocks", s.map_blocks()},
          {"map_levels", kMapLevels}};
}

}  // namespace

model::Config shape_from(const std::string& text) {
  using model::Limits;
  model::Config config;
  const struct {
    std::string_view name;
    std::int64_t* to;
    std::int64_t most;
  } members[] = {{"layers", &config.n_layers, Limits::layers},
                 {"heads", &config.n_heads, Limits::heads},
                 {"kv_heads", &config.n_kv_heads, Limits::heads},
                 {"head_dim", &config.head_dim, Limits::head_dim},
                 {"vocab", &config.vocab_size, Limits::vocabulary},
                 {"rotary", &config.rotary_dim, Limits::head_dim}};
  const auto wanted = [&] { return join(members, ", ", [](const auto& one) { return one.name; }); };
  for (std::size_t start = 0; start <= text.size();) {
    const auto end = std::min(text.find(',', start), text.size());
    const std::string_view item = std::string_view(text).substr(start, end - start);
    const auto equals = std::min(item.find('='), item.size());
    const auto member = std::find_if(std::begin(members), std::end(members), [&](const auto& one) {
      return one.name == item.substr(0, equals);
    });
    if (member == std::end(members) || equals == item.size())
      fail(ErrorCode::usage, "--describe ", quoted(std::string(item)),
           ": expected NAME=NUMBER with a comma between them, of ", wanted());
    const std::string_view digits = item.substr(equals + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), *member->to);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || *member->to < 1 ||
        *member->to > member->most)
      fail(ErrorCode::usage, "--describe ", quoted(std::string(item)),
           ": expected a whole number from 1 to ", member->most);
    start = end + 1;
  }
  for (const auto& member : members)
    if (*member.to == 0 && member.to != &config.rotary_dim)
      fail(ErrorCode::usage, "--describe lacks ", member.name, "=NUMBER");
  if (config.rotary_dim == 0) config.rotary_dim = config.head_dim;
  if (config.n_heads % config.n_kv_heads != 0 || config.rotary_dim > config.head_dim)
    fail(ErrorCode::usage,
         "--describe: heads must be a multiple of kv_heads, and rotary at most head_dim");
  return config;
}

std::string description_json(const CaptureSettings& settings, const model::Config& shape,
                             const std::string& version) {
  ordered_json axes = ordered_json::array();
  for (const AxisTable& table : axis_tables(settings)) {
    ordered_json rows = ordered_json::array();
    const std::size_t columns = table.columns.size();
    for (std::size_t row = 0; row < table.labels.size(); ++row)
      rows.push_back(std::vector<std::int64_t>(
          table.values.begin() + static_cast<std::ptrdiff_t>(row * columns),
          table.values.begin() + static_cast<std::ptrdiff_t>((row + 1) * columns)));
    axes.push_back({{"axis", table.axis},
                    {"columns", table.columns},
                    {"values", rows},
                    {"labels", table.labels}});
  }
  const ordered_json out = {
      {"schema", kSchema},
      {"schema_major", kSchemaMajor},
      {"schema_minor", kSchemaMinor},
      {"tool_version", version},
      {"capture", parse_json(settings.json())},
      {"numbers", numbers_of(settings)},
      {"axes", axes},
      {"arrays", parse_json(descriptions_text(descriptions(settings, shape)))},
      {"texts", parse_json(descriptions_text(text_descriptions()))},
      {"codes",
       {{"scale_factor", share_code::kScale},
        {"add_offset", share_code::kOffset},
        {"one", share_code::kOne},
        {"unknown", share_code::kUnknown}}}};
  return out.dump(2);
}

}  // namespace kvatlas::profile
