// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/checkpoint/tensor.hpp"
#include "base/mapped_file.hpp"

namespace kvatlas::model {

/// The tensors of one safetensors file's bytes. Checks header size (100 MB at most), JSON, dtypes,
/// shapes (no overflow), and that offsets lie inside, do not overlap and leave no holes.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes);

/// Which file of a folder holds each tensor, by what the index says (its files are not opened), or
/// by the header of model.safetensors. Names of files are plain ones, as below.
std::map<std::string, std::string> tensor_files(const std::filesystem::path& folder);
/// A file of the folder by its plain name; Error(unreadable) for a link that leads out of it, and
/// if there is none.
std::filesystem::path file_in_folder(const std::filesystem::path& folder, const std::string& name);

/// All safetensors of a model folder, mapped: model.safetensors, or the shards that
/// model.safetensors.index.json names. Shard names must be plain file names inside the folder (no
/// separator, no "..", no link that leads out of the folder unless it is the hub cache's own blobs
/// link).
class SafetensorsFolder {
 public:
  static SafetensorsFolder open(const std::filesystem::path& folder);
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// nullptr if absent; Error(unsupported) if its type is one that kvatlas cannot decode.
  const StoredTensor* find(std::string_view name) const;
  const std::vector<MappedFile>& files() const { return files_; }

 private:
  std::vector<MappedFile> files_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace kvatlas::model
