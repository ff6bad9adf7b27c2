// SPDX-License-Identifier: Apache-2.0
#include "viewer/methods/overview_model.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "analyzer/profile/model_text.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "viewer/methods/method_row.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;

std::string bytes_text(double bytes) { return bytes_str(std::llround(bytes)); }

/// "1015 to 1024", or one number.
std::string range_text(const std::set<std::int64_t>& values) {
  if (values.empty()) return "-";
  return values.size() == 1 ? str(*values.begin()) : str(*values.begin(), " to ", *values.rbegin());
}

std::vector<Fact> model_facts(const profile::Header& header, const calibrate::CacheShape& shape) {
  std::vector<Fact> facts = {
      {"model", header.model_name},
      {"architecture", header.architecture},
      {"layers", profile::layers_text(header.n_layers, header.layer_numbers)},
      {"heads", str(header.n_heads, " query, ", header.n_kv_heads, " KV, of ", header.head_dim)},
      {"context", str(header.context_length, " tokens")},
      {"cache a token", bytes_text(shape.bytes_per_token()) + " at 16 bits"}};
  if (auto cache = profile::cache_text(header.cached_values, header.latent_rank); !cache.empty())
    facts.push_back({"cached", std::move(cache)});
  const auto windowed = std::count_if(header.window.begin(), header.window.end(),
                                      [](std::int64_t window) { return window > 0; });
  if (windowed > 0)
    facts.push_back(
        {"windows", str(windowed, " layers see and hold no more than ",
                        *std::max_element(header.window.begin(), header.window.end()), " tokens")});
  return facts;
}

std::vector<Fact> provenance_facts(const profile::Reader& profile) {
  const auto& header = profile.header();
  std::map<std::string, std::int64_t> tasks;
  std::set<std::int64_t> lengths, seeds;
  for (const auto& sample : profile.samples()) {
    ++tasks[sample.task.empty() ? "your own" : sample.task];
    lengths.insert(sample.n_tokens);
    if (sample.seed >= 0) seeds.insert(sample.seed);
  }
  std::string samples = join(
      tasks, ", ", [](const auto& task) { return str(task.second, " ", printable(task.first)); });
  if (!profile.complete())
    samples += str(" (", profile.samples().size(), " of ", header.planned_samples, " planned)");
  std::vector<Fact> facts = {{"samples", samples},
                             {"lengths", range_text(lengths) + " tokens"},
                             {"taken with", "kvatlas " + header.tool_version},
                             {"backend", header.backend},
                             {"profile", calibrate::profile_fingerprint(profile)},
                             {"weights", header.model_fingerprint}};
  if (!header.tokenizer_fingerprint.empty())
    facts.push_back({"tokenizer", header.tokenizer_fingerprint});
  if (!seeds.empty())
    facts.insert(facts.begin() + 2, {seeds.size() == 1 ? "seed" : "seeds", range_text(seeds)});
  return facts;
}

void show_measured(const OverviewModel& model, const Choices& choices, const MethodRow& row,
                   const MeasuredPart& known, PolicyCard& card) {
  const auto& measured = known.measured;
  if (measured && row.is_present(known.part, model.evidence, choices)) {
    card.measured = measured;
    card.score = change_text(*measured);
    const std::string risk = measured_risk(*measured);
    if (!risk.empty()) card.advice.risk = risk;
  } else if (measured) {
    card.score = "not measured at this setting; save it and run 'kvatlas evaluate'";
  } else {
    card.score = str("not measured: 'kvatlas calibrate ", row.method->name,
                     " --model' or 'kvatlas evaluate' does");
  }
}

}  // namespace

Fact file_date(const std::filesystem::path& path) {
  std::error_code failed;
  const auto written = std::filesystem::last_write_time(path, failed);
  if (failed) return {"file written", "unknown"};
  const auto seconds =
      std::chrono::system_clock::to_time_t(std::chrono::file_clock::to_sys(written));
  std::tm date{};
  gmtime_r(&seconds, &date);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &date);
  return {"file written", text.data()};
}

OverviewModel read_overview_model(const profile::Reader& profile, MethodModels methods,
                                  std::span<const calibrate::Document> documents) {
  OverviewModel model;
  model.evidence.shape = calibrate::cache_shape(profile.header());
  model.facts = model_facts(profile.header(), model.evidence.shape);
  model.provenance = provenance_facts(profile);
  static_cast<MethodModels&>(model.evidence) = std::move(methods);
  for (const MethodRow& row : method_rows()) {
    if (row.read) row.read(profile, documents, model.evidence);
    auto& known = model.known.emplace_back();
    const json section = section_alone_in(documents, row.method->name);
    if (!section.is_object()) continue;
    known.measured = report_in<calibrate::MethodReport>(section, *row.method).measured;
    known.part = calibrate::part_of(row.method->name, section);
  }
  return model;
}

OverviewView overview_view(const OverviewModel& model, const Choices& choices) {
  OverviewView view;
  const double full = model.evidence.shape.full_bytes(choices.length);
  view.cache = {{"whole cache", str(bytes_text(full), " at ", choices.length, " tokens")}};
  for (std::size_t i = 0; i < method_rows().size(); ++i) {
    const MethodRow& row = method_rows()[i];
    PolicyCard card;
    card.section = row.method->name;
    card.title = row.method->title;
    card.screen = row.screen;
    try {
      row.show(model.evidence, choices, card);
      if (!card.setting.empty()) show_measured(model, choices, row, model.known[i], card);
    } catch (const Error& error) {
      card.missing = error.what();
    }
    view.cards.push_back(std::move(card));
  }
  view.table.columns = {{"policy"},         {"setting"},      {"KV kept", "share"},
                        {"kept", "bytes"},  {"score change"}, {"reason", "", true},
                        {"risk", "", true}, {"missing"}};
  for (const auto& card : view.cards)
    view.table.rows.push_back({card.title, card.setting, card.kept_share, card.kept_bytes,
                               card.score, card.advice.reason, card.advice.risk, card.missing});
  return view;
}

}  // namespace kvatlas::viewer
