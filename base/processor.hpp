// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

namespace kvatlas {

/// What the system says of the first core.
struct Processor {
  std::string name = "unknown";
  std::set<std::string> flags;  // such as "avx2" and "amx_bf16"

  bool has(const std::string& flag) const { return flags.count(flag) != 0; }
  /// What multiplies matrices of bfloat16: "AMX" or "AVX-512", "" if nothing does.
  std::string bfloat16() const {
    return has("amx_bf16") ? "AMX" : has("avx512_bf16") ? "AVX-512" : "";
  }
};
Processor processor();

}  // namespace kvatlas
