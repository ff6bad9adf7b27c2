// SPDX-License-Identifier: Apache-2.0
// The reference data: where it lies, and how its HDF5 arrays are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kvatlas::testing_support {

/// A file or folder of the reference data in tests/golden/data. Throws std::runtime_error if it is
/// not there, so that the test fails.
std::filesystem::path golden_path(const std::string& name);
/// A tiny checkpoint of either set, by its name.
std::filesystem::path golden_checkpoint(const std::string& name);

/// A file that './dev setup' fetches: ${XDG_CACHE_HOME:-~/.cache}/kvatlas/name. Throws
/// std::runtime_error if it is not there.
std::filesystem::path fetched_path(const std::string& name);

/// The demo model, SmolLM2-135M-Instruct.
inline std::filesystem::path demo_model() {
  return fetched_path("SmolLM2-135M-Instruct.Q4_1.gguf");
}

/// An HDF5 dataset of numbers, in any width the file has.
struct GoldenArray {
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // row-major; exact for float32 and integers below 2^53

  std::vector<float> floats() const { return {values.begin(), values.end()}; }
  std::vector<std::int64_t> integers() const;
};

/// Throws std::runtime_error, naming file and dataset, if it cannot be read.
GoldenArray read_golden(const std::filesystem::path& file, const std::string& dataset);

/// Names of the members of a group, sorted.
std::vector<std::string> golden_members(const std::filesystem::path& file,
                                        const std::string& group);

}  // namespace kvatlas::testing_support
