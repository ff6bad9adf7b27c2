// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/text_count.hpp"
#include "calibrate/inspect/diff.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

bool is_estimate(const json& value) {
  return value.is_object() && value.size() == 3 && value.contains("mean") &&
         value.contains("low") && value.contains("high");
}

/// Walks two documents side by side.
class Walk {
 public:
  Diff diff(const Document& first, const Document& second) {
    compare("model", info(first.model), info(second.model));
    compare("kv_bits", first.kv_bits, second.kv_bits);
    compare("kv_residual", first.kv_residual, second.kv_residual);
    compare("compose", first.compose, second.compose);
    compare("runtime", first.runtime, second.runtime);
    std::set<std::string> names;
    for (const auto* document : {&first, &second})
      for (const auto& [name, section] : document->sections.items()) names.insert(name);
    for (const auto& name : names)
      compare(name, first.sections.value(name, json()), second.sections.value(name, json()));
    std::stable_sort(out_.changes.begin(), out_.changes.end(),
                     [](const Change& x, const Change& y) { return x.size > y.size; });
    return std::move(out_);
  }

 private:
  static json info(const ModelInfo& model) {
    return {{"name", model.name},
            {"architecture", model.architecture},
            {"layers", model.layers},
            {"heads", model.heads},
            {"kv_heads", model.kv_heads},
            {"head_dim", model.head_dim},
            {"fingerprint", model.fingerprint}};
  }

  void compare(const std::string& place, const json& a, const json& b) {
    if (a == b) {
      if (is_estimate(a)) ++out_.compared;
    } else if (is_estimate(a) && is_estimate(b)) {
      compare_estimates(place, a, b);
    } else if (a.is_object() && b.is_object()) {
      std::set<std::string> keys;
      for (const auto* of : {&a, &b})
        for (const auto& [key, value] : of->items()) keys.insert(key);
      for (const auto& key : keys) {
        // Reports on all candidates follow from the settings and from the samples.
        if (key == "curve" || key == "sweep" || key == "points") continue;
        compare(place + "." + key, a.value(key, json()), b.value(key, json()));
      }
    } else if (a.is_array() && b.is_array() && a.size() == b.size()) {
      for (std::size_t i = 0; i < a.size(); ++i) compare(place + "." + str(i), a[i], b[i]);
    } else {
      add(place, a, b);
    }
  }

  void compare_estimates(const std::string& place, const json& a, const json& b) {
    ++out_.compared;
    const Estimate first = estimate_of(a), second = estimate_of(b);
    const double difference = second.mean - first.mean;
    const double width = std::hypot((first.high - first.low) / 2, (second.high - second.low) / 2);
    if (!(std::abs(difference) > width)) return;
    out_.changes.push_back({place, "", a.at("mean"), b.at("mean"),
                            Estimate{difference, difference - width, difference + width},
                            std::abs(difference)});
  }

  void add(const std::string& place, const json& a, const json& b) {
    Change change{place, "", a, b, {}, 1};  // what is no number counts as wholly changed
    if (a.is_number() && b.is_number()) {
      const auto from = a.get<double>(), to = b.get<double>();
      const double scale = std::max(std::abs(from), std::abs(to));
      change.size = scale > 0 ? std::abs(to - from) / scale : 0;
    }
    out_.changes.push_back(std::move(change));
  }

  Diff out_;
};

std::string text_of(const json& value) {
  if (value.is_null()) return "-";
  if (value.is_object()) return "there";
  if (value.is_number_float()) return fixed_text(value.get<double>(), 4);
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return printable(text, 40);
}

}  // namespace

Diff diff_documents(const Document& first, const Document& second) {
  return Walk().diff(first, second);
}

Table diff_table(const Diff& diff, std::size_t most) {
  if (diff.changes.empty()) return {.title = "Nothing changed"};
  Table table{"", {"what", "where", "first", "second", "change"}, {}};
  table.title =
      str("What changed, largest first (", count_of(diff.changes.size(), "change", "changes"),
          diff.changes.size() > most ? str(", of which ", most,
                                           " are shown; --all shows "
                                           "them all")
                                     : "",
          ")");
  for (const auto& change : diff.changes) {
    if (table.rows.size() == most) break;
    table.rows.push_back({change.what, change.where.empty() ? "-" : change.where,
                          text_of(change.first), text_of(change.second),
                          change.difference ? estimate_text(*change.difference, 4) : "-"});
  }
  return table;
}

json diff_json(const Diff& diff) {
  json changes = json::array();
  for (const auto& change : diff.changes) {
    json one = {{"what", change.what}, {"first", change.first}, {"second", change.second}};
    if (!change.where.empty()) one["where"] = change.where;
    if (change.difference)
      one["difference"] = {{"mean", change.difference->mean},
                           {"low", change.difference->low},
                           {"high", change.difference->high}};
    changes.push_back(std::move(one));
  }
  return {{"changes", changes}, {"compared", diff.compared}, {"notes", diff.notes}};
}

}  // namespace kvatlas::calibrate
