// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::KvFormat;

std::string ik_type(KvFormat format) {
  return format == KvFormat::f16 ? "f16" : std::string(facts_of(format).word);
}

/// The options of one side: the type of the layers between, and those of the ends.
std::string side_options(const std::vector<calibrate::KvFormats>& layers,
                         KvFormat calibrate::KvFormats::*side, const char* letter) {
  std::vector<std::pair<KvFormat, std::int64_t>> runs;
  for (const auto& layer : layers) {
    if (runs.empty() || runs.back().first != layer.*side) runs.emplace_back(layer.*side, 0);
    ++runs.back().second;
  }
  // Of two runs the shorter one is an end.
  const bool first = runs.size() == 3 || (runs.size() == 2 && runs[0].second <= runs[1].second);
  const std::size_t middle = first ? 1 : 0;
  std::string out = str(" --cache-type-", letter, " ", ik_type(runs[middle].first));
  const auto end = [&](const char* where, const auto& run) {
    out += str(" --cache-type-", letter, "-", where, " ", ik_type(run.first), ",", run.second);
  };
  if (first) end("first", runs[0]);
  if (middle + 1 < runs.size()) end("last", runs[middle + 1]);
  return out;
}

}  // namespace

Exported export_ik_llama_cpp(const PartRequest& request) {
  const auto& model = request.document.model;
  if (model.head_dim % 32 != 0)
    fail(ErrorCode::usage, request.runtime.title,
         " stores numbers in blocks of 32, and heads of the model have ", model.head_dim);
  const auto layers =
      calibrate::layer_formats(std::get<calibrate::Precision>(request.part), model.layers);
  const std::string options =
      str(side_options(layers, &calibrate::KvFormats::keys, "k"),
          side_options(layers, &calibrate::KvFormats::values, "v"), " -khad -vhad --flash-attn on");
  Exported out;
  out.model = "the model's GGUF file";
  out.files.push_back({"cache_types.txt", options.substr(1) + "\n"});
  out.use = str("llama-server -m $MODEL", options,
                "\n# or, with the file:\nllama-server -m $MODEL $(cat cache_types.txt)");
  out.notes = {
      "-khad and -vhad rotate keys and values before they are rounded, as llama.cpp itself does "
      "and "
      "'kvatlas evaluate' with it. ik_llama.cpp rotates by the whole head where llama.cpp rotates "
      "values by 64 numbers, and at the ends it does so only where the type between them is one of "
      "fewer bits.",
      "Values in a type of fewer bits need --flash-attn."};
  return out;
}

}  // namespace kvatlas::exporting
