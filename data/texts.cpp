// SPDX-License-Identifier: Apache-2.0
#include "data/texts.hpp"

#include "base/embedded_file.hpp"

namespace kvatlas::data {

KVATLAS_EMBEDDED_FILE(prose_text, "texts/prose.txt")
KVATLAS_EMBEDDED_FILE(code_text, "texts/code.txt")
KVATLAS_EMBEDDED_FILE(longbench_text, "texts/longbench.json")

}  // namespace kvatlas::data
