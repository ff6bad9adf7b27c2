// SPDX-License-Identifier: Apache-2.0
// Files that are part of the program. The assembler puts their bytes into the read-only data as
// they are. The build names them too, so that the source is compiled anew when one changes:
// kvatlas_embed_files(texts.cpp texts/prose.txt) in CMakeLists.txt, and in texts.cpp
// KVATLAS_EMBEDDED_FILE(prose_text, "texts/prose.txt"), within a namespace that has a name.
#pragma once

#include <cstddef>
#include <string_view>

/// Defines the function `std::string_view name()`, which gives the file's text. `path` is a string
/// literal, seen from the folder of the CMakeLists.txt.
#define KVATLAS_EMBEDDED_FILE(name, path)                                             \
  __asm__(                                                                            \
      ".pushsection .rodata\n"                                                        \
      "kvatlas_" #name "_begin: .incbin \"" KVATLAS_EMBEDDED_FROM "/" path            \
      "\"\n"                                                                          \
      "kvatlas_" #name                                                                \
      "_end:\n"                                                                       \
      ".popsection\n"                                                                 \
      ".hidden kvatlas_" #name "_begin\n.globl kvatlas_" #name                        \
      "_begin\n"                                                                      \
      ".hidden kvatlas_" #name "_end\n.globl kvatlas_" #name "_end\n");               \
  extern "C" const char kvatlas_##name##_begin[], kvatlas_##name##_end[];             \
  std::string_view name() {                                                           \
    return {kvatlas_##name##_begin,                                                   \
            static_cast<std::size_t>(kvatlas_##name##_end - kvatlas_##name##_begin)}; \
  }
