// SPDX-License-Identifier: Apache-2.0
// HDF5's identifiers as objects, and the writing of attributes and groups. HDF5 writes profiles and
// never reads one: stored_file_impl.hpp does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hdf5.h>

#include "analyzer/profile/chunks_impl.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"

namespace kvatlas::profile {

/// Only one thread at a time may be inside HDF5: the one that owns an object of this class. The
/// owner must not wait for the thread pool, whose tasks may wait for HDF5. HDF5 prints nothing
/// meanwhile.
class Hdf5Session {
 public:
  Hdf5Session();
  ~Hdf5Session();
  Hdf5Session(const Hdf5Session&) = delete;
  Hdf5Session& operator=(const Hdf5Session&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> turn_;
  SerialSection in_place_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

/// Throws Error(unreadable) with `what` and HDF5's own reason.
[[noreturn]] void fail_hdf5(std::string_view what);

/// Returns `result`, or throws if it is negative, by which HDF5 reports a failure.
template <class Result>
Result check(Result result, std::string_view what) {
  if (result < 0) fail_hdf5(what);
  return result;
}

/// Owns one identifier.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, std::string_view what) : id_(check(id, what)) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) Close(id_);
  }

  hid_t get() const noexcept { return id_; }
  /// Closes a written file and throws if that fails, because closing writes what is left.
  void close(std::string_view what) { check(Close(std::exchange(id_, H5I_INVALID_HID)), what); }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using H5File = Handle<H5Fclose>;
using H5Group = Handle<H5Gclose>;
using H5Dataset = Handle<H5Dclose>;
using H5Space = Handle<H5Sclose>;
using H5Type = Handle<H5Tclose>;
using H5Attribute = Handle<H5Aclose>;
using H5Properties = Handle<H5Pclose>;

/// How files are opened: in the format whose metadata have checksums, and without HDF5's own lock,
/// which some file systems do not have.
H5Properties file_access();
/// How groups, datasets and files are made: with attributes beside the object and no time stamps.
void set_object_properties(const H5Properties& properties);

/// Strings have a fixed length with zero bytes at the end, in UTF-8. Numbers are int64 or float64.
void write_attribute(hid_t object, const char* name, const std::string& value);
void write_attribute(hid_t object, const char* name, const std::vector<std::string>& values);
void write_attribute(hid_t object, const char* name, std::int64_t value);
void write_attribute(hid_t object, const char* name, const Sizes& values);
void write_attribute(hid_t object, const char* name, double value);

/// Opens the group at `path`, and makes it if it is absent.
H5Group make_groups(hid_t place, const std::string& path);

}  // namespace kvatlas::profile
