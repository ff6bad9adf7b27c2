// SPDX-License-Identifier: Apache-2.0
#include "base/foreign_error.hpp"

#include <new>
#include <string_view>

#include "base/str.hpp"

namespace kvatlas {

Error gpu_error(bool memory, const std::string& text) {
  return {ErrorCode::resource,
          memory ? str("the GPU's memory ran out (", text,
                       "): use shorter prompts, a smaller --memory-budget or --device cpu")
                 : str("the GPU failed (", text, "): --device cpu does without it")};
}

Error as_error(const std::exception& thrown) {
  if (const auto* ours = dynamic_cast<const Error*>(&thrown)) return *ours;
  if (dynamic_cast<const std::bad_alloc*>(&thrown))
    return {ErrorCode::resource,
            "memory ran out: use shorter prompts or a smaller --memory-budget"};
  const std::string_view whole = thrown.what();
  const std::string text = printable(whole.substr(0, whole.find('\n')), 300);
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  const bool memory = says("out of memory") || says("alloc");
  if (says("CUDA out of memory") || says("CUDA error")) return gpu_error(memory, text);
  if (memory)
    return {ErrorCode::resource,
            str("memory ran out (", text, "): use shorter prompts or a smaller --memory-budget")};
  return {ErrorCode::internal, "internal error: " + text};
}

}  // namespace kvatlas
