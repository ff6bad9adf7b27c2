// SPDX-License-Identifier: Apache-2.0
// The methods of calibration and the sections of a policy document: what each is called.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace kvatlas::calibrate {

/// A section of a policy document, and what made it: a method of calibration, or another source.
struct Method {
  /// The section in documents, the part in policies, the word on the command line and in the
  /// families of a search.
  const char* name;
  const char* title;  // in texts and charts
  /// The setting that calibration finds, which its "curve" runs over; nullptr if there is not
  /// exactly one.
  const char* setting = nullptr;
  bool needs_training = false;  // a model must be trained to bear the policy
  /// Other policies that calibration measures beside the method's own.
  struct Control {
    const char* member = nullptr;  // of the section
    const char* title = nullptr;
  };
  std::array<Control, 2> controls = {};

  /// Whether a section of this name is the method's.
  bool is(std::string_view section) const { return section == name; }
};

namespace method {
inline constexpr Method kSimLayerKv = {
    "simlayerkv",
    "SimLayerKV",
    "threshold",
    false,
    {{{"static", "SimLayerKV, the same layers for all inputs"},
      {"opposite", "SimLayerKV, as many layers of the smallest mass"}}}};
inline constexpr Method kPod = {"pod", "PoD", "delta", true};
inline constexpr Method kDynamicKv = {"dynamickv",
                                      "DynamicKV",
                                      "budget",
                                      false,
                                      {{{"by_prompt", "DynamicKV, budgets found for each prompt"},
                                        {"by_task", "DynamicKV, budgets fixed for each task"}}}};
inline constexpr Method kHeadKv = {"headkv",
                                   "HeadKV",
                                   "budget",
                                   false,
                                   {{{"even", "SnapKV, the same budget for each head"},
                                     {"other", "HeadKV, budgets by the other rule"}}}};
inline constexpr Method kLagKv = {
    "lagkv", "LagKV", nullptr, false, {{{"local", "LocalKV"}, {"l2", "L2 norm"}}}};
inline constexpr Method kPrecision = {"precision", "Precision by layer"};
// No methods of calibration, but sections as well.
inline constexpr Method kBaseline = {"baseline", "Baseline"};
inline constexpr Method kHeads = {"heads", "Imported heads"};
}  // namespace method

/// All sections that a document may have, in the order in which their policies are listed.
inline constexpr std::array kSections = {method::kSimLayerKv, method::kPod,   method::kDynamicKv,
                                         method::kHeadKv,     method::kLagKv, method::kPrecision,
                                         method::kBaseline,   method::kHeads};
/// All methods of calibration: the sections but the last two.
inline constexpr auto kMethods = std::span(kSections).first<kSections.size() - 2>();

/// nullptr if no section is called so.
constexpr const Method* find_section(std::string_view name) {
  for (const Method& section : kSections)
    if (section.is(name)) return &section;
  return nullptr;
}

}  // namespace kvatlas::calibrate
