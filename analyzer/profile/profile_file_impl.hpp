// SPDX-License-Identifier: Apache-2.0
// An opened and checked profile, which Reader, resuming and merging use; and the writing of one,
// from samples in memory or in other profiles.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/profile/dataset_impl.hpp"
#include "analyzer/profile/header_impl.hpp"
#include "analyzer/profile/profile.hpp"

namespace kvatlas::profile {

/// Describes the array of tokens, which every sample has beside the captured arrays.
const Description& tokens_description();

/// How messages name a file.
std::string shown(const std::filesystem::path& path);

/// Whether the file begins as every HDF5 file does.
bool begins_as_hdf5(const std::filesystem::path& path);
/// Error(usage) if the path holds something that is neither empty nor an HDF5 file, so that a wrong
/// name cannot destroy a model or a list of prompts.
void require_replaceable(const std::filesystem::path& path);

/// The grids of a statistic's dataset for that many samples, and of one sample's array.
Grid statistic_grid(const Description& array, std::int64_t n_samples);
Grid sample_grid(const Description& array, const Sizes& shape);

/// All functions throw Error(unreadable) that names the object; callers add the path.
class ProfileFile {
 public:
  explicit ProfileFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const Header& header() const { return header_; }
  const std::vector<Sample>& samples() const { return samples_; }
  bool complete() const {
    return static_cast<std::int64_t>(samples_.size()) == header_.planned_samples;
  }

  bool has_statistic(const Description& array) const;
  StoredArray statistic(const Description& array) const;
  bool has_array(std::size_t position, const Description& array) const;
  StoredArray sample_array(std::size_t position, const Description& array) const;

  const std::string& trouble() const { return file_.trouble(); }

  /// Decodes all arrays of a sample, so that damage is found.
  void require_intact() const;

 private:
  void read_samples();

  std::filesystem::path path_;
  StoredFile file_;
  StoredObject root_;
  Header header_;
  std::vector<Sample> samples_;
};

/// A sample that is to be written, from memory or from another profile. The latter is not decoded.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual const Sample& about() const = 0;  // without its arrays and tokens
  /// The shape of an array in this sample, or nothing if the sample does not have it.
  virtual std::optional<Sizes> shape(const Description& array) = 0;
  /// Chunk number k of the array, as it is stored.
  virtual Bytes chunk(const Description& array, std::int64_t k) = 0;
};
using Sources = std::vector<std::unique_ptr<SampleSource>>;

/// A sample in memory, whose arrays are deflated on all threads.
std::unique_ptr<SampleSource> from_memory(const Header& header, const Sample& sample);

/// Adds every sample of the file. `index` may give them other indices, by position.
void add_sources(std::shared_ptr<const ProfileFile> file, Sources& sources,
                 const std::vector<std::int64_t>& index = {});

/// Writes a profile into an empty file, with the sources in the order of their indices. The bytes
/// depend on nothing but the header and the samples.
void write_profile(hid_t file, const Header& header, const Sources& sources);

}  // namespace kvatlas::profile
