// SPDX-License-Identifier: Apache-2.0
// config.json and, after a zero byte, generation_config.json; then the rope that follows from them.
#include <cstdint>
#include <string_view>

#include "analyzer/model/config_files.hpp"
#include "analyzer/model/rope.hpp"
#include "kernels/base/error.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto end = text.find('\0');
  const auto generation = end == text.npos ? std::string_view() : text.substr(end + 1);
  try {
    const Config config = parse_hf_config(text.substr(0, end), generation, "fuzz").config;
    for (std::int64_t n_tokens : {1, 100'000})
      rope_frequencies(config.rope, config.rotary_dim, config.context_length, n_tokens);
  } catch (const Error&) {
  }
  return 0;
}
