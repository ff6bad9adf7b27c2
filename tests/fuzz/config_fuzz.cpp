// SPDX-License-Identifier: Apache-2.0
// config.json and, after a zero byte, generation_config.json; then the rope that follows from them.
#include <cstdint>

#include "analyzer/config/config_files.hpp"
#include "analyzer/config/rope.hpp"
#include "base/error.hpp"
#include "tests/fuzz/two_parts.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [text, generation] = two_parts(data, size);
  try {
    const Config config = parse_hf_config(text, generation, "fuzz").config;
    for (std::int64_t n_tokens : {1, 100'000})
      rope_frequencies(config.rope, config.rotary_dim, config.context_length, n_tokens);
  } catch (const Error&) {
  }
  return 0;
}
