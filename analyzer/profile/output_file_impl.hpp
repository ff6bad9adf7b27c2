// SPDX-License-Identifier: Apache-2.0
// A file that HDF5 writes and that we own: where the disk is full, HDF5 is not told (its own way to
// fail there leaves the file open, and prints), the rest is dropped, and write_file() says why.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <hdf5.h>

namespace kvatlas::profile {

/// Has `write` fill a new file that lies at `temporary` until it is whole and on the disk; then it
/// is at `path`, whatever was there. Error(resource) with the system's reason, and no file left
/// over, where that fails.
void write_file(const std::filesystem::path& temporary, const std::filesystem::path& path,
                const std::function<void(hid_t file)>& write);

}  // namespace kvatlas::profile
