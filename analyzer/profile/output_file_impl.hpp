// SPDX-License-Identifier: Apache-2.0
// Files that HDF5 writes by way of our own driver. If the disk is full, HDF5 is not told, because
// it would print a message and leave the file open. The driver then drops the rest, and
// write_file() says what happened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <hdf5.h>

namespace kvatlas::profile {

/// Has `write` fill a new file at `temporary`. When it is whole and on the disk, it is moved to
/// `path`, whatever was there before. If that fails, no file is left over, and Error(resource)
/// gives the system's reason.
void write_file(const std::filesystem::path& temporary, const std::filesystem::path& path,
                const std::function<void(hid_t file)>& write);

}  // namespace kvatlas::profile
