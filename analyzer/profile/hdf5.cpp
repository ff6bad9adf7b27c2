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

/// An attribute that was found and measured, before anything is allocated for it.
struct Found {
  H5Attribute attribute;
  H5Type type;
  std::int64_t count;  // of elements
  std::size_t element_bytes;
};

Found find(hid_t object, const char* name, bool one, std::int64_t most_bytes) {
  const std::string what = str("attribute '", name, "'");
  if (check(H5Aexists(object, name), what) == 0) fail(ErrorCode::unreadable, what, " is missing");
  Found found{{H5Aopen(object, name, H5P_DEFAULT), what}, {}, 0, 0};
  found.type = {H5Aget_type(found.attribute.get()), what};
  const H5Space space(H5Aget_space(found.attribute.get()), what);
  const int rank = check(H5Sget_simple_extent_ndims(space.get()), what);
  found.count = check(H5Sget_simple_extent_npoints(space.get()), what);
  found.element_bytes = H5Tget_size(found.type.get());
  if (rank != (one ? 0 : 1) || (one && found.count != 1))
    fail(ErrorCode::unreadable, what, " has ", rank, " dimensions and ", found.count,
         " elements, expected ", one ? "a single value" : "a list");
  if (found.element_bytes == 0 ||
      found.count > most_bytes / static_cast<std::int64_t>(found.element_bytes))
    fail(ErrorCode::unreadable, what, " has ", found.count, " elements of ", found.element_bytes,
         " bytes, more than the ", most_bytes, " bytes that it may have");
  return found;
}

void require_type(const Found& found, const char* name, hid_t type, const char* expected) {
  if (check(H5Tequal(found.type.get(), type), name) == 0)
    fail(ErrorCode::unreadable, "attribute '", name, "' is not of type ", expected);
}

std::vector<std::string> strings(hid_t object, const char* name, bool one,
                                 std::int64_t most_bytes) {
  const Found found = find(object, name, one, most_bytes);
  if (H5Tget_class(found.type.get()) != H5T_STRING || H5Tis_variable_str(found.type.get()) != 0)
    fail(ErrorCode::unreadable, "attribute '", name, "' is not a string of fixed length");
  std::string bytes(static_cast<std::size_t>(found.count) * found.element_bytes, '\0');
  if (found.count > 0)
    check(H5Aread(found.attribute.get(), found.type.get(), bytes.data()),
          str("attribute '", name, "'"));
  std::vector<std::string> values;
  for (std::size_t start = 0; start < bytes.size(); start += found.element_bytes) {
    std::string value = bytes.substr(start, found.element_bytes);
    value.erase(value.find_last_not_of('\0') + 1);
    values.push_back(std::move(value));
  }
  return values;
}

constexpr std::int64_t kNumberBytes = 8;

}  // namespace

Hdf5Session::Hdf5Session() : turn_(hdf5_mutex()) {
  // We close what we open. HDF5's own end of the process prints, where a damaged file left it with
  // things it cannot close.
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

std::string read_string(hid_t object, const char* name, std::int64_t most_bytes) {
  return strings(object, name, true, most_bytes).front();
}

std::vector<std::string> read_strings(hid_t object, const char* name, std::int64_t most_bytes) {
  return strings(object, name, false, most_bytes);
}

std::int64_t read_integer(hid_t object, const char* name) {
  const Found found = find(object, name, true, kNumberBytes);
  require_type(found, name, H5T_STD_I64LE, "int64");
  std::int64_t value = 0;
  check(H5Aread(found.attribute.get(), H5T_NATIVE_INT64, &value), str("attribute '", name, "'"));
  return value;
}

Sizes read_integers(hid_t object, const char* name, std::int64_t most_bytes) {
  const Found found = find(object, name, false, most_bytes);
  require_type(found, name, H5T_STD_I64LE, "int64");
  Sizes values(static_cast<std::size_t>(found.count));
  if (found.count > 0)
    check(H5Aread(found.attribute.get(), H5T_NATIVE_INT64, values.data()),
          str("attribute '", name, "'"));
  return values;
}

double read_double(hid_t object, const char* name) {
  const Found found = find(object, name, true, kNumberBytes);
  require_type(found, name, H5T_IEEE_F64LE, "float64");
  double value = 0;
  check(H5Aread(found.attribute.get(), H5T_NATIVE_DOUBLE, &value), str("attribute '", name, "'"));
  return value;
}

bool has_attribute(hid_t object, const char* name) {
  return check(H5Aexists(object, name), str("attribute '", name, "'")) > 0;
}

namespace {

bool has_member(hid_t group, const std::string& name) {
  if (check(H5Lexists(group, name.c_str(), H5P_DEFAULT), quoted(name)) == 0) return false;
  H5L_info_t link;
  check(H5Lget_info(group, name.c_str(), &link, H5P_DEFAULT), quoted(name));
  if (link.type != H5L_TYPE_HARD)
    fail(ErrorCode::unreadable, quoted(name), " is ",
         link.type == H5L_TYPE_SOFT       ? "a soft link"
         : link.type == H5L_TYPE_EXTERNAL ? "a link to another file"
                                          : "a link of an unknown kind",
         ", which a profile does not have");
  return true;
}

/// Calls visit(group, name) for each part of the path in turn; it returns the next group, or an
/// object of no identifier to stop.
template <class Visit>
void walk(hid_t place, const std::string& path, const Visit& visit) {
  H5Object group;
  for (std::size_t start = 0; start < path.size();) {
    const auto end = std::min(path.find('/', start), path.size());
    H5Object next = visit(start == 0 ? place : group.get(), path.substr(start, end - start),
                          end == path.size());
    if (next.get() < 0) return;
    group = std::move(next);
    start = end + 1;
  }
}

H5Object open_member(hid_t group, const std::string& name) {
  return {H5Oopen(group, name.c_str(), H5P_DEFAULT), quoted(name)};
}

}  // namespace

bool has_object(hid_t place, const std::string& path) {
  bool found = false;
  walk(place, path, [&](hid_t group, const std::string& name, bool last) -> H5Object {
    found = has_member(group, name);
    if (!found || last) return {};
    H5Object next = open_member(group, name);
    if (H5Iget_type(next.get()) == H5I_GROUP) return next;
    found = false;
    return {};
  });
  return found;
}

H5Object open_object(hid_t place, const std::string& path, H5I_type_t kind) {
  H5Object object;
  walk(place, path, [&](hid_t group, const std::string& name, bool last) -> H5Object {
    if (!has_member(group, name)) fail(ErrorCode::unreadable, quoted(path), " is missing");
    H5Object next = open_member(group, name);
    const H5I_type_t expected = last ? kind : H5I_GROUP;
    if (H5Iget_type(next.get()) != expected)
      fail(ErrorCode::unreadable, quoted(name), " is not a ",
           expected == H5I_GROUP ? "group" : "dataset");
    if (!last) return next;
    object = std::move(next);
    return {};
  });
  return object;
}

H5Group make_groups(hid_t place, const std::string& path) {
  H5Properties creation(H5Pcreate(H5P_GROUP_CREATE), "making group properties");
  set_object_properties(creation);
  H5Group made;
  walk(place, path, [&](hid_t group, const std::string& name, bool last) -> H5Object {
    if (!has_member(group, name)) {
      H5Group fresh(H5Gcreate2(group, name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                    quoted(name));
      fresh.close(quoted(name));
    }
    if (!last) return open_member(group, name);
    made = {H5Gopen2(group, name.c_str(), H5P_DEFAULT), quoted(name)};
    return {};
  });
  return made;
}

}  // namespace kvatlas::profile
