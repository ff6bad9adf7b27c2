// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "calibrate/policy/policy.hpp"

// The assembler puts the file into the read-only data as it is.
__asm__(
    ".pushsection .rodata\n"
    "kvatlas_policy_schema_begin: .incbin \"" KVATLAS_POLICY_SCHEMA
    "\"\n"
    "kvatlas_policy_schema_end:\n"
    ".popsection\n"
    ".hidden kvatlas_policy_schema_begin\n.globl kvatlas_policy_schema_begin\n"
    ".hidden kvatlas_policy_schema_end\n.globl kvatlas_policy_schema_end\n");

extern "C" {
extern const char kvatlas_policy_schema_begin[], kvatlas_policy_schema_end[];
}

namespace kvatlas::calibrate {

std::string_view document_schema() {
  return {kvatlas_policy_schema_begin,
          static_cast<std::size_t>(kvatlas_policy_schema_end - kvatlas_policy_schema_begin)};
}

}  // namespace kvatlas::calibrate
