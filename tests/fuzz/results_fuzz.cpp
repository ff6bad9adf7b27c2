// SPDX-License-Identifier: Apache-2.0
// A result file of another tool: what is read pairs with itself, and loses nothing.
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "base/error.hpp"
#include "calibrate/certify/pairing.hpp"
#include "tests/fuzz/input_file.hpp"

using namespace kvatlas;
using namespace kvatlas::calibrate;

namespace {

void use(const std::filesystem::path& path, const ReadRequest& request) {
  try {
    const auto files = read_results(path, request);
    doubts_of(files);
    Gate gate;
    gate.by_mean = true;
    if (files.front().answers.empty()) {
      judge_totals("itself", files, files, gate);
      return;
    }
    const auto paired = pair_runs(files, files, {ValueRange{-1e6, 1e6}, true});
    const double lost = judge_pairs("itself", paired.pairs, gate).measured.loss.mean;
    if (lost == 0) return;
    std::cerr << "beside itself it loses " << lost << '\n';
    std::abort();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::internal) return;
    std::cerr << error.what() << '\n';
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const InputFile file("qa_1.jsonl");
  const auto path = file.write(data, size);
  use(path, {});
  use(path, {.metric = "f1", .group = "group"});
  return 0;
}
