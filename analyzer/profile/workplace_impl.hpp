// SPDX-License-Identifier: Apache-2.0
// The folder "p.h5.parts" beside a profile that is being written: the lock, the finished samples
// that are not in p.h5 yet, and what is half written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>

namespace kvatlas::profile {

/// Whether something has this name. False if that cannot be found out.
bool is_there(const std::filesystem::path& path);

class Workplace {
 public:
  static std::filesystem::path folder_of(const std::filesystem::path& profile);
  /// Whether finished samples lie beside the profile.
  static bool has_parts(const std::filesystem::path& profile);

  /// Makes the folder and takes the lock, which ends with this object or this process; Error(usage)
  /// if another one holds it.
  static Workplace lock(const std::filesystem::path& profile);
  /// Uses the folder that another process made and whose lock it holds.
  static Workplace join(const std::filesystem::path& profile);

  Workplace(Workplace&& other) noexcept;
  Workplace& operator=(Workplace&&) = delete;
  /// Removes the folder if only the lock is left in it.
  ~Workplace();

  const std::filesystem::path& profile() const { return profile_; }
  std::filesystem::path part(std::int64_t index) const;
  std::filesystem::path temporary(std::int64_t index) const;
  std::filesystem::path assembled() const;
  std::filesystem::path gathered(int number) const;  // samples on their way into the profile
  std::set<std::int64_t> parts() const;

  /// The mark that says that the profile is of an older run and will be replaced: whether it is
  /// there, and how it is left and removed.
  bool begun_anew() const;
  void begin_anew() const;
  void end_anew() const;

  void remove_part(std::int64_t index) const;
  void remove_parts() const;
  /// Removes the files that a killed process left half written.
  void remove_half_written() const;

 private:
  Workplace(std::filesystem::path profile, int descriptor);
  std::filesystem::path mark() const;

  std::filesystem::path profile_, folder_;
  int descriptor_;  // the lock's file; -1 if another process holds the lock
};

}  // namespace kvatlas::profile
