// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include <hdf5.h>

#include "tests/support/places.hpp"

namespace kvatlas::testing_support {
namespace {

/// An open HDF5 thing; throws if it did not open.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id < 0) throw std::runtime_error("cannot read " + what);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { close_(id_); }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

hid_t open_file(const std::filesystem::path& file) {
  return H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
}

}  // namespace

std::filesystem::path golden_path(const std::string& name) {
  std::filesystem::path path = source_folder() / "tests/golden/data" / name;
  if (!std::filesystem::exists(path)) throw std::runtime_error("no file " + path.string());
  return path;
}

std::filesystem::path golden_checkpoint(const std::string& name) {
  const auto newer = golden_path("tiny2") / name;
  return std::filesystem::exists(newer) ? newer : golden_path("tiny/" + name);
}

std::filesystem::path fetched_path(const std::string& name) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder = cache != nullptr && *cache != '\0'
                                           ? std::filesystem::path(cache)
                                           : std::filesystem::path(home ? home : "/") / ".cache";
  std::filesystem::path path = folder / "kvatlas" / name;
  if (!std::filesystem::exists(path))
    throw std::runtime_error("no file " + path.string() + ": ./dev setup fetches it");
  return path;
}

std::vector<std::int64_t> GoldenArray::integers() const { return {values.begin(), values.end()}; }

GoldenArray read_golden(const std::filesystem::path& path, const std::string& dataset) {
  const std::string what = path.string() + ": " + dataset;
  const Handle file(open_file(path), H5Fclose, path.string());
  const Handle data(H5Dopen2(file, dataset.c_str(), H5P_DEFAULT), H5Dclose, what);
  const Handle space(H5Dget_space(data), H5Sclose, what);
  std::vector<hsize_t> sizes(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
  GoldenArray array;
  array.shape.assign(sizes.begin(), sizes.end());
  array.values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  if (!array.values.empty() &&
      H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.data()) < 0)
    throw std::runtime_error("cannot read " + what);
  return array;
}

std::vector<std::string> golden_members(const std::filesystem::path& path,
                                        const std::string& group) {
  const Handle file(open_file(path), H5Fclose, path.string());
  const Handle opened(H5Gopen2(file, group.c_str(), H5P_DEFAULT), H5Gclose,
                      path.string() + ": " + group);
  std::vector<std::string> names;
  const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
    static_cast<std::vector<std::string>*>(to)->emplace_back(name);
    return 0;
  };
  hsize_t position = 0;
  H5Literate(opened, H5_INDEX_NAME, H5_ITER_INC, &position, collect, &names);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace kvatlas::testing_support
