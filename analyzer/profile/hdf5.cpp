// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "analyzer/profile/hdf5_impl.hpp"

namespace kvatlas::profile {
namespace {

std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

herr_t keep_innermost(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

H5Type string_type(std::size_t length) {
  H5Type type(H5Tcopy(H5T_C_S1), "making a string type");
  check(H5Tset_size(type.get(), std::max<std::size_t>(length, 1)), "making a string type");
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "making a string type");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "making a string type");
  return type;
}

H5Space line_of(std::int64_t count) {
  const auto size = static_cast<hsize_t>(count);
  return {H5Screate_simple(1, &size, nullptr), "making a space"};
}

void write(hid_t object, const char* name, const H5Type& type, const H5Space& space,
           const void* value) {
  const std::string what = str("writing attribute '", name, "'");
  H5Attribute attribute(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                        what);
  if (H5Sget_simple_extent_npoints(space.get()) > 0)
    check(H5Awrite(attribute.get(), type.get(), value), what);
  attribute.close(what);
}

}  // namespace

Hdf5Session::Hdf5Session() : turn_(hdf5_mutex()) {
  // We close what we open. HDF5 need not look for more at the end of the process, where it would
  // print what it cannot close.
  static const herr_t no_end = H5dont_atexit();
  static_cast<void>(no_end);
  // No code is loaded for a filter that a file names.
  static const herr_t no_plugins = H5PLset_loading_state(0);
  static_cast<void>(no_plugins);
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Session::~Hdf5Session() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

void fail_hdf5(std::string_view what) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &reason);
  H5Eclear2(H5E_DEFAULT);
  fail(ErrorCode::unreadable, what, reason.empty() ? "" : ": ", printable(reason, 200));
}

H5Properties file_access() {
  H5Properties access(H5Pcreate(H5P_FILE_ACCESS), "making file properties");
  check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110),
        "making file properties");
  check(H5Pset_file_locking(access.get(), false, true), "making file properties");
  return access;
}

void set_object_properties(const H5Properties& properties) {
  check(H5Pset_attr_phase_change(properties.get(), 64, 32), "making object properties");
  check(H5Pset_obj_track_times(properties.get(), false), "making object properties");
}

void write_attribute(hid_t object, const char* name, const std::string& value) {
  std::string bytes = value;
  if (bytes.empty()) bytes.push_back('\0');
  write(object, name, string_type(bytes.size()), {H5Screate(H5S_SCALAR), "making a space"},
        bytes.data());
}

void write_attribute(hid_t object, const char* name, const std::vector<std::string>& values) {
  std::size_t length = 1;
  for (const auto& value : values) length = std::max(length, value.size());
  std::string bytes(length * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i)
    std::copy(values[i].begin(), values[i].end(), bytes.data() + i * length);
  write(object, name, string_type(length), line_of(static_cast<std::int64_t>(values.size())),
        bytes.data());
}

void write_attribute(hid_t object, const char* name, std::int64_t value) {
  write(object, name, {H5Tcopy(H5T_STD_I64LE), "making a type"},
        {H5Screate(H5S_SCALAR), "making a space"}, &value);
}

void write_attribute(hid_t object, const char* name, const Sizes& values) {
  write(object, name, {H5Tcopy(H5T_STD_I64LE), "making a type"},
        line_of(static_cast<std::int64_t>(values.size())), values.data());
}

void write_attribute(hid_t object, const char* name, double value) {
  write(object, name, {H5Tcopy(H5T_IEEE_F64LE), "making a type"},
        {H5Screate(H5S_SCALAR), "making a space"}, &value);
}

H5Group make_groups(hid_t place, const std::string& path) {
  H5Properties creation(H5Pcreate(H5P_GROUP_CREATE), "making group properties");
  set_object_properties(creation);
  H5Group group;
  for (std::size_t start = 0; start < path.size();) {
    const auto end = std::min(path.find('/', start), path.size());
    const std::string name = path.substr(start, end - start);
    const hid_t above = start == 0 ? place : group.get();
    if (check(H5Lexists(above, name.c_str(), H5P_DEFAULT), quoted(name)) == 0) {
      H5Group fresh(H5Gcreate2(above, name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                    quoted(name));
      fresh.close(quoted(name));
    }
    group = {H5Gopen2(above, name.c_str(), H5P_DEFAULT), quoted(name)};
    start = end + 1;
  }
  return group;
}

}  // namespace kvatlas::profile
