// SPDX-License-Identifier: Apache-2.0
#include "data/texts.hpp"

#include <cstddef>

// The assembler puts the files into the read-only data as they are.
__asm__(
    ".pushsection .rodata\n"
    "kvatlas_prose_begin: .incbin \"" KVATLAS_TEXTS
    "/prose.txt\"\n"
    "kvatlas_prose_end:\n"
    "kvatlas_code_begin: .incbin \"" KVATLAS_TEXTS
    "/code.txt\"\n"
    "kvatlas_code_end:\n"
    "kvatlas_longbench_begin: .incbin \"" KVATLAS_TEXTS
    "/longbench.json\"\n"
    "kvatlas_longbench_end:\n"
    ".popsection\n"
    ".hidden kvatlas_prose_begin\n.globl kvatlas_prose_begin\n"
    ".hidden kvatlas_prose_end\n.globl kvatlas_prose_end\n"
    ".hidden kvatlas_code_begin\n.globl kvatlas_code_begin\n"
    ".hidden kvatlas_code_end\n.globl kvatlas_code_end\n"
    ".hidden kvatlas_longbench_begin\n.globl kvatlas_longbench_begin\n"
    ".hidden kvatlas_longbench_end\n.globl kvatlas_longbench_end\n");

extern "C" {
extern const char kvatlas_prose_begin[], kvatlas_prose_end[];
extern const char kvatlas_code_begin[], kvatlas_code_end[];
extern const char kvatlas_longbench_begin[], kvatlas_longbench_end[];
}

namespace kvatlas::data {

std::string_view prose_text() {
  return {kvatlas_prose_begin, static_cast<std::size_t>(kvatlas_prose_end - kvatlas_prose_begin)};
}

std::string_view code_text() {
  return {kvatlas_code_begin, static_cast<std::size_t>(kvatlas_code_end - kvatlas_code_begin)};
}

std::string_view longbench_text() {
  return {kvatlas_longbench_begin,
          static_cast<std::size_t>(kvatlas_longbench_end - kvatlas_longbench_begin)};
}

}  // namespace kvatlas::data
