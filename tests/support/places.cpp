// SPDX-License-Identifier: Apache-2.0
#include "tests/support/places.hpp"

namespace kvatlas::testing_support {

std::filesystem::path source_folder() { return KVATLAS_SOURCE_DIR; }
std::filesystem::path build_folder() { return KVATLAS_BINARY_DIR; }

}  // namespace kvatlas::testing_support
