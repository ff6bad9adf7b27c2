// SPDX-License-Identifier: Apache-2.0
// Turns policy documents into the files that runtimes read. These functions neither read nor write
// files, and equal input gives equal bytes. The exporter of each runtime stands in the file of its
// name, and exporters.cpp lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/fp8_scales.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "export/checkpoint.hpp"

namespace kvatlas::exporting {

/// A file that is to be written: its path below the output folder, and its whole content.
struct ExportFile {
  std::string path, content;
};

/// A link that is to be made: its path below the output folder, and the file that it leads to.
struct ExportLink {
  std::string path;
  std::filesystem::path target;
};

/// Scales of FP8 caches for a runtime that reads them from the checkpoint or from a file.
struct ScalesRequest {
  calibrate::Fp8Scales scales;
  std::string origin;  // sentences on where they are from, and what they are worth
  /// What keys and values lose under the scales, and under one for both. Known of a profile's.
  std::optional<calibrate::ScaleErrors> errors, shared_errors;
};

/// One part of a policy for one runtime, which can take it: that has been checked already.
struct PartRequest {
  const calibrate::Document& document;
  const calibrate::Runtime& runtime;
  calibrate::Part part;  // as it stands in the document
  calibrate::Form form = calibrate::Form::lazy_layers;
  calibrate::RuntimePolicy theirs;  // what the runtime makes of it
  std::int64_t length = 0;          // ratios are computed for prompts of so many tokens
  /// The checkpoint's config.json, if it was given. Exporters that change some of its fields then
  /// write the whole file.
  std::optional<nlohmann::json> config;
  std::optional<ScalesRequest> scales = {};
  const Checkpoint* checkpoint = nullptr;  // over which a folder with the scales is laid
  bool modelopt_names = false;             // of the scales
};

/// What an exporter makes of a request. README.txt is written from it.
struct Exported {
  std::vector<ExportFile> files;
  /// How the files are passed to the runtime: exact commands or lines of code, in which $MODEL
  /// stands for the model.
  std::string use;
  /// What the user must know besides the losses: one or more sentences in each note.
  std::vector<std::string> notes;
  std::string model = "the model's folder or its name on Hugging Face";  // what $MODEL is
  std::vector<ExportLink> links = {};
};

/// Writes the files. Error(usage) if only the exporter can see that the runtime cannot take them.
using Exporter = Exported (*)(const PartRequest& request);
/// nullptr if the runtime has none.
Exporter exporter_of(std::string_view runtime);

/// What the user asks of an export.
struct ExportRequest {
  std::string runtime;
  /// Such as "lagkv". If empty, every policy of the document that the runtime takes is exported.
  std::string section;
  std::string task;  // whose budgets of DynamicKV are exported; if empty, those for all tasks
  /// Export the static view of a policy that decides for each input, though the runtime could
  /// decide too.
  bool fixed = false;
  /// Prompt tokens that ratios are computed for; 0 stands for the longest prompt of the
  /// calibration.
  std::int64_t length = 0;
  std::optional<nlohmann::json> config;
  /// They take the place of the document's own.
  std::optional<ScalesRequest> scales = {};
  std::optional<Checkpoint> checkpoint;
  bool modelopt_names = false;
};

/// One exported policy of a document.
struct ExportedPolicy {
  std::string section;            // of the document, or calibrate::kComposition
  std::vector<ExportFile> files;  // with README.txt
  std::vector<ExportLink> links;
  std::string note;  // says of a static view how often inputs decide otherwise; else empty
};

struct ExportResult {
  std::vector<ExportedPolicy> policies;
  std::vector<std::string> refused;  // each as "pod, lagkv: why they were left out"
};

/// Exports the policies that are asked for. Error(usage) with the reasons if none can be exported.
ExportResult export_document(const calibrate::Document& document, const ExportRequest& request);

/// The matrix of runtimes and the forms that they take, as `kvatlas export --list` prints it.
std::string matrix_text();
nlohmann::json matrix_json();

}  // namespace kvatlas::exporting
