// SPDX-License-Identifier: Apache-2.0
// Others' head patterns. The first byte says which and how; what is read must be a document that
// can be written and read again as the same.
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "base/error.hpp"
#include "export/importers.hpp"

using namespace kvatlas;

namespace {

calibrate::Document imported(std::uint8_t how, std::string_view text) {
  importing::ImportRequest request;
  request.model = {"m", "llama", "", 0, how % 8 < 4 ? 4 : 0, 2, 64};
  if (how & 8) request.share = request.sparsity = 0.5;
  if (how & 16) request.threshold = 0.25;
  if (how & 32) request.initial = 4, request.recent = 60;
  const char* sizes = R"({"sink_size": 4, "recent_size": 60})";
  switch (how % 4) {
    case 0:
      return importing::import_duo_attention(text, sizes, request);
    case 1:
      return importing::import_headkv(text, request);
    case 2:
      return importing::import_minference(text, request);
    default:
      return importing::import_duo_attention("1\t0\n", text, request);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string written;
  try {
    written = calibrate::document_text(imported(data[0], text));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) return 0;
    std::cerr << error.what() << '\n';
    std::abort();
  }
  if (calibrate::document_text(calibrate::parse_document(written)) == written) return 0;
  std::cerr << "not read as it was written:\n" << written << '\n';
  std::abort();
}
