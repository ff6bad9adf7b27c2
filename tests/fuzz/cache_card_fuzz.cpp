// SPDX-License-Identifier: Apache-2.0
// What the cache of a model costs, from a GGUF header or a config.json of any architecture.
#include <cstdint>
#include <string_view>

#include "analyzer/config/cache_card.hpp"
#include "analyzer/profile/commands.hpp"
#include "base/error.hpp"
#include "calibrate/inspect/commands.hpp"
#include "tests/fuzz/input_file.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const InputFile gguf("m.gguf"), config("config.json");
  const bool is_gguf =
      std::string_view(reinterpret_cast<const char*>(data), size).starts_with("GGUF");
  try {
    const CacheCard card = read_cache_card((is_gguf ? gguf : config).write(data, size));
    for (const std::int64_t length : {std::int64_t{0}, std::int64_t{1} << 17})
      calibrate::caches_of_sequences()(card, {}, length);
    card.state_values();
  } catch (const Error&) {
  }
  return 0;
}
