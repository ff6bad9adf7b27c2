// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <unistd.h>

#include "analyzer/profile/hdf5_impl.hpp"
#include "analyzer/profile/output_file_impl.hpp"
#include "base/whole_file.hpp"

namespace kvatlas::profile {
namespace {

/// The file as HDF5's driver sees it. The first failure is kept, and nothing is written after it.
struct Output {
  int descriptor;
  int failure = 0;  // errno

  void note(bool right) {
    if (!right && failure == 0) failure = errno != 0 ? errno : EIO;
  }
  void write(std::int64_t offset, const char* bytes, std::size_t size) {
    while (size > 0 && failure == 0) {
      const ssize_t done = ::pwrite(descriptor, bytes, size, offset);
      if (done < 0 && errno == EINTR) continue;
      note(done > 0);
      if (done <= 0) return;
      bytes += done;
      offset += done;
      size -= static_cast<std::size_t>(done);
    }
  }
  void read(std::int64_t offset, char* bytes, std::size_t size) {
    while (size > 0) {
      const ssize_t done = ::pread(descriptor, bytes, size, offset);
      if (done < 0 && errno == EINTR) continue;
      note(done >= 0);
      if (done <= 0) break;
      bytes += done;
      offset += done;
      size -= static_cast<std::size_t>(done);
    }
    std::fill_n(bytes, size, '\0');  // not written yet
  }
};

/// What reaches HDF5's driver with the wish to open a file.
struct Destination {
  Output* output;
};

struct DriverFile {
  H5FD_t base;  // HDF5's part, which it expects to come first
  Output* output;
  haddr_t allocated, written;
};

DriverFile* of(H5FD_t* file) { return reinterpret_cast<DriverFile*>(file); }
const DriverFile* of(const H5FD_t* file) { return reinterpret_cast<const DriverFile*>(file); }

H5FD_t* driver_open(const char*, unsigned, hid_t access, haddr_t) {
  auto file = std::make_unique<DriverFile>();
  file->output = static_cast<const Destination*>(H5Pget_driver_info(access))->output;
  return &file.release()->base;
}

herr_t driver_close(H5FD_t* file) {
  const std::unique_ptr<DriverFile> gone(of(file));
  return 0;
}

herr_t driver_query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t driver_allocated(const H5FD_t* file, H5FD_mem_t) { return of(file)->allocated; }

herr_t driver_allocate(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file)->allocated = end;
  return 0;
}

haddr_t driver_written(const H5FD_t* file, H5FD_mem_t) { return of(file)->written; }

herr_t driver_read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, std::size_t size,
                   void* bytes) {
  of(file)->output->read(static_cast<std::int64_t>(address), static_cast<char*>(bytes), size);
  return 0;
}

herr_t driver_write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, std::size_t size,
                    const void* bytes) {
  of(file)->output->write(static_cast<std::int64_t>(address), static_cast<const char*>(bytes),
                          size);
  of(file)->written = std::max(of(file)->written, address + size);
  return 0;
}

herr_t driver_truncate(H5FD_t* file, hid_t, hbool_t) {
  Output& output = *of(file)->output;
  if (output.failure == 0)
    output.note(::ftruncate(output.descriptor, static_cast<off_t>(of(file)->allocated)) == 0);
  of(file)->written = of(file)->allocated;
  return 0;
}

hid_t driver() {
  static const hid_t id = [] {
    static H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
    driver.version = H5FD_CLASS_VERSION;
    driver.value = 600;  // of those that HDF5 leaves to its users
#endif
    driver.name = "kvatlas";
    driver.maxaddr = static_cast<haddr_t>(INT64_MAX);
    driver.fc_degree = H5F_CLOSE_WEAK;
    driver.fapl_size = sizeof(Destination);
    driver.open = driver_open;
    driver.close = driver_close;
    driver.query = driver_query;
    driver.get_eoa = driver_allocated;
    driver.set_eoa = driver_allocate;
    driver.get_eof = driver_written;
    driver.read = driver_read;
    driver.write = driver_write;
    driver.truncate = driver_truncate;
    const H5FD_mem_t kinds[] = H5FD_FLMAP_DICHOTOMY;
    std::copy(std::begin(kinds), std::end(kinds), driver.fl_map);
    return check(H5FDregister(&driver), "registering the file driver");
  }();
  return id;
}

}  // namespace

void write_file(const std::filesystem::path& temporary, const std::filesystem::path& path,
                const std::function<void(hid_t file)>& write) {
  UnfinishedFile unfinished(path, temporary);
  Output output{.descriptor = unfinished.descriptor()};
  try {
    const H5Properties access = file_access();
    const Destination destination = {&output};
    check(H5Pset_driver(access.get(), driver(), &destination), "choosing the file driver");
    const H5Properties creation(H5Pcreate(H5P_FILE_CREATE), "making file properties");
    set_object_properties(creation);
    H5File file(H5Fcreate(temporary.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
                temporary.string());
    write(file.get());
    file.close(temporary.string());
  } catch (...) {
    // What HDF5 found wrong with a file that stopped growing is not the reason.
    if (output.failure != 0) fail_writing(path, output.failure);
    throw;
  }
  if (output.failure != 0) fail_writing(path, output.failure);
  unfinished.finish();
  unfinished.take_name(true);
  sync_folder(parent_of(path));
}

}  // namespace kvatlas::profile
