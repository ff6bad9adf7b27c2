// SPDX-License-Identifier: Apache-2.0
// An opened profile, checked: what Reader, resuming and merging stand on. And the writing of one,
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

/// What is stored with every sample, in the manner of a captured array.
const Description& tokens_description();

/// The first bytes of a file are those of every HDF5 file.
bool begins_as_hdf5(const std::filesystem::path& path);
/// Error(usage) if something is there that is neither an HDF5 file nor empty: a wrong name must not
/// cost a model or a list of prompts.
void require_replaceable(const std::filesystem::path& path);

/// The whole grid of a statistic's dataset for so many samples, and of one sample's array.
Grid statistic_grid(const Description& array, std::int64_t n_samples);
Grid sample_grid(const Description& array, const Sizes& shape);

/// All of its functions throw Error(unreadable), naming the object; callers put the path in front.
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

  /// Decodes all that a sample has, so that damage is found.
  void require_intact() const;

 private:
  void read_samples();

  std::filesystem::path path_;
  std::int64_t bytes_ = 0;
  H5File file_;
  Header header_;
  std::vector<Sample> samples_;
};

/// A sample to be written: from memory, or from another profile without decoding it.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual const Sample& about() const = 0;  // its arrays and tokens are not looked at
  /// The shape of the array in this sample; none if it lacks it.
  virtual std::optional<Sizes> shape(const Description& array) = 0;
  /// Its chunk number k as it is stored.
  virtual Bytes chunk(const Description& array, std::int64_t k) = 0;
};
using Sources = std::vector<std::unique_ptr<SampleSource>>;

/// Deflates the arrays, on all threads.
std::unique_ptr<SampleSource> from_memory(const Header& header, const Sample& sample);

/// Adds every sample of the file, under other indices where `index` (by position) says so.
void add_sources(std::shared_ptr<const ProfileFile> file, Sources& sources,
                 const std::vector<std::int64_t>& index = {});

/// Writes all of a profile into an empty file. The sources are in the order of their indices. What
/// is written depends on the header and the samples alone.
void write_profile(hid_t file, const Header& header, const Sources& sources);

}  // namespace kvatlas::profile
