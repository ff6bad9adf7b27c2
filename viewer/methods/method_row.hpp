// SPDX-License-Identifier: Apache-2.0
// What is different from method to method in the viewer: a row for each, in the file of its name.
// The overview, the comparison, the settings that documents bring along and the documents that are
// saved walk the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/rules/cache_bytes.hpp"
#include "viewer/methods/comparison_model.hpp"
#include "viewer/methods/overview_model.hpp"

namespace kvatlas::viewer {

/// What a document is made from: what was chosen, and what it was chosen from.
struct Source {
  const MethodModels& models;
  const Choices& choices;
  std::span<const calibrate::Document> documents;
};

struct MethodRow {
  const calibrate::Method* method;
  const char* screen;  // on which it is set
  /// Reads what is shown of documents' sections; null where profiles say it.
  void (*read)(const profile::Reader& profile, std::span<const calibrate::Document> documents,
               Evidence& evidence);
  /// Fills the card, or says what is missing.
  void (*show)(const Evidence& evidence, const Choices& choices, PolicyCard& card);
  /// Whether what was measured of this part is of the present setting.
  bool (*is_present)(const calibrate::Part& known, const Evidence& evidence,
                     const Choices& choices);
  /// Whether a section can be made from the profile and the documents, and the section.
  bool (*can_be_saved)(const profile::Reader& profile,
                       std::span<const calibrate::Document> documents);
  nlohmann::json (*section)(const Source& from);
  /// Takes the settings of a document's part, null where no document has one, and moves them to the
  /// nearest that the profile has statistics for.
  void (*take)(const calibrate::Part* part, const profile::Header& header, Choices& choices);
  /// Adds the settings that calibration tried.
  void (*add_searched)(const nlohmann::json& section, ComparisonModel& model);
  /// Makes a compared policy the chosen one.
  void (*choose)(const ComparedPolicy& policy, Choices& choices);
  /// Fills in what the part keeps of each layer; null where it tells none apart.
  void (*strip)(const calibrate::Part& part, const nlohmann::json& section, std::size_t layers,
                ComparisonModel::Strip& strip);
};

MethodRow simlayerkv_row(), pod_row(), dynamickv_row(), headkv_row(), lagkv_row(), precision_row();
/// In the order of calibrate::kMethods.
const std::vector<MethodRow>& method_rows();
/// nullptr if the section is no method's.
const MethodRow* find_row(std::string_view section);

// What rows have in common.

/// Reads a section that a document must have; without it the reason says how to make it.
template <class Read>
auto read_section(const calibrate::Method& method, const profile::Reader& profile,
                  std::span<const calibrate::Document> documents, const char* missing, Read read) {
  return try_read([&] {
    calibrate::require_fit(method, profile.header());
    const auto& section = section_in(documents, method.name);
    if (section.is_null()) fail(ErrorCode::usage, missing);
    return read(section);
  });
}
/// Whether a document has the section; for sections that are made from such ones alone.
template <const calibrate::Method& method>
bool is_in_documents(const profile::Reader&, std::span<const calibrate::Document> documents) {
  return !section_in(documents, method.name).is_null();
}
/// Calls `fill` with the model; without one the card says why.
template <class Model, class Fill>
void show_model(const OrReason<Model>& read, PolicyCard& card, const Fill& fill) {
  card.missing = read.reason;
  if (read.model) fill(*read.model);
}
/// Share, bytes and their text.
void set_kept(double share, const calibrate::CacheShape& shape, std::int64_t length,
              PolicyCard& card);
void set_kept(const calibrate::Policy& policy, const calibrate::CacheShape& shape,
              std::int64_t length, PolicyCard& card);
/// Without a title, for the chart is small and has one.
Axis share_axis();
bool is_near(double a, double b);

/// `wanted` if the profile's grid has it, else the grid's first.
kernels::Proximity in_grid(const profile::Header& header, kernels::Proximity wanted);
/// Likewise of the budgets that leave more than the window.
std::int64_t in_grid(const profile::Header& header, std::int64_t wanted, std::int64_t window);

/// A policy that a search tried. It is left out if its score or the share that it keeps is not
/// known.
void add_tried(const calibrate::Method& method, ComparedPolicy policy, ComparisonModel& model);
/// One of the values of the setting that calibration found.
void add_tried(const calibrate::Method& method, const calibrate::CurvePoint& point,
               double kept_share, ComparisonModel& model);
/// A policy that was measured.
void add_policy(ComparedPolicy policy, Measured measured, ComparisonModel& model);
/// Tokens of each layer, as a share of the most.
void set_budgets(std::vector<double> tokens, ComparisonModel::Strip& strip);

}  // namespace kvatlas::viewer
