// SPDX-License-Identifier: Apache-2.0
// Files of this folder that exporters write as they are: the assembler puts them into the
// read-only data.
#pragma once

#include <cstddef>
#include <string_view>

/// Defines `std::string_view name()` of the file's text; `path` is a string literal.
#define KVATLAS_EMBEDDED_FILE(name, path)                                             \
  __asm__(                                                                            \
      ".pushsection .rodata\n"                                                        \
      "kvatlas_" #name "_begin: .incbin \"" path                                      \
      "\"\n"                                                                          \
      "kvatlas_" #name                                                                \
      "_end:\n"                                                                       \
      ".popsection\n"                                                                 \
      ".hidden kvatlas_" #name "_begin\n.globl kvatlas_" #name                        \
      "_begin\n"                                                                      \
      ".hidden kvatlas_" #name "_end\n.globl kvatlas_" #name "_end\n");               \
  extern "C" {                                                                        \
  extern const char kvatlas_##name##_begin[], kvatlas_##name##_end[];                 \
  }                                                                                   \
  static std::string_view name() {                                                    \
    return {kvatlas_##name##_begin,                                                   \
            static_cast<std::size_t>(kvatlas_##name##_end - kvatlas_##name##_begin)}; \
  }
