// SPDX-License-Identifier: Apache-2.0
// Policy documents to the files that runtimes read. Pure: equal input gives equal bytes, and
// nothing is read or written. One file of code a runtime; exporters.cpp lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::exporting {

/// A file to be written: its path below the folder that is exported to, and all of its bytes.
struct ExportFile {
  std::string path, content;
};

/// One part of a policy, for one runtime that can take it (runtimes.hpp has checked that).
struct Order {
  const calibrate::Document& document;
  const calibrate::Runtime& runtime;
  calibrate::Part part;  // as in the document
  calibrate::Form form = calibrate::Form::lazy_layers;
  calibrate::RuntimePolicy theirs;  // what the runtime makes of it
  std::int64_t length = 0;          // prompt tokens that ratios hold for
  /// The checkpoint's config.json, where it was given: files that extend it are then whole.
  std::optional<nlohmann::json> config;
};

/// What an exporter makes of an order. README.txt is written from it (readme_impl.hpp).
struct Exported {
  std::vector<ExportFile> files;
  /// How the files are passed to the runtime: exact commands or lines of code, with $MODEL for the
  /// model; each line indented by four spaces in README.txt.
  std::string use;
  /// What the reader must know beside the losses: a sentence each.
  std::vector<std::string> notes;
};

/// Error(usage) where the runtime cannot take it for a reason that only shows here.
using Exporter = Exported (*)(const Order& order);
/// nullptr for a runtime without one.
Exporter exporter_of(std::string_view runtime);

/// What is asked of an export.
struct ExportRequest {
  std::string runtime;
  std::string section;  // "lagkv"; empty: every policy of the document that the runtime takes
  std::string task;     // DynamicKV's budgets of this task; empty: overall
  bool fixed = false;   // the static view of a per-input policy, though the runtime could decide
  std::int64_t length = 0;  // prompt tokens that ratios hold for; 0: the longest calibrated one
  std::optional<nlohmann::json> config;
};

/// One exported policy of a document.
struct ExportedPolicy {
  std::string section;            // of the document; calibrate::kComposition for a composed one
  std::vector<ExportFile> files;  // README.txt among them
  std::string note;               // that it is a static view, and what inputs say; else empty
};

struct ExportResult {
  std::vector<ExportedPolicy> policies;
  std::vector<std::string> refused;  // "lagkv: why it was left out"
};

/// Every policy of the document for one runtime. Error(usage) with the reasons if none can be
/// exported.
ExportResult export_document(const calibrate::Document& document, const ExportRequest& request);

/// The matrix of runtimes and forms, for people.
std::string matrix_text();
nlohmann::json matrix_json();

}  // namespace kvatlas::exporting
