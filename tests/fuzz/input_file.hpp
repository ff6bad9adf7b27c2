// SPDX-License-Identifier: Apache-2.0
// An input as a file, for readers that take a path.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kvatlas {

/// A file in a folder of its own, which is gone at the end of the process.
class InputFile {
 public:
  explicit InputFile(const std::string& name) {
    std::string folder = (std::filesystem::temp_directory_path() / "kvatlas-fuzz-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    path_ = std::filesystem::path(folder) / name;
  }
  ~InputFile() {
    std::error_code ignored;
    std::filesystem::remove_all(path_.parent_path(), ignored);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  const std::filesystem::path& write(const std::uint8_t* data, std::size_t size) const {
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    if (!out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size)))
      std::abort();
    return path_;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace kvatlas
