// SPDX-License-Identifier: Apache-2.0
// The folders that tests read from and write to. They stand in one source alone, so that the other
// tests compile to the same objects in every checkout.
#pragma once

#include <filesystem>

namespace kvatlas::testing_support {

/// The checkout.
std::filesystem::path source_folder();
/// The build folder.
std::filesystem::path build_folder();

}  // namespace kvatlas::testing_support
