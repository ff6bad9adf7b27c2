// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/device.hpp"

#include <charconv>
#include <dlfcn.h>
#include <filesystem>
#include <mutex>
#include <omp.h>
#include <string>

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/cuda_device.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"

namespace kvatlas::capture {
namespace {

/// The folder of the LibTorch that this process runs with.
std::filesystem::path torch_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) == 0 || !info.dli_fname)
    return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

/// Opens LibTorch's CUDA part, once. It registers itself with the part that is linked; that must
/// happen before LibTorch is first asked about CUDA, for it remembers the answer. Returns what went
/// wrong, or "".
std::string open_torch_cuda() {
  static std::once_flag once;
  static std::string trouble;
  std::call_once(once, [] {
    const auto library = torch_folder() / "libtorch_cuda.so";
    if (!dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL))
      trouble = str("LibTorch's CUDA part could not be opened: ", dlerror());
  });
  return trouble;
}

std::string settle_dtype(const std::string& asked, bool on_gpu) {
  if (asked == "auto") return on_gpu ? "bfloat16" : "float32";
  if (asked == "float32" || asked == "float16" || asked == "bfloat16") return asked;
  fail(ErrorCode::usage, "--dtype ", quoted(asked), ": use auto, float32, float16 or bfloat16");
}

int gpu_index(const std::string& device) {
  int index = 0;
  const char* begin = device.data() + 4;
  const char* end = device.data() + device.size();
  if (begin == end) return 0;
  if (*begin == ':') {
    const auto [rest, error] = std::from_chars(begin + 1, end, index);
    if (error == std::errc() && rest == end && index >= 0) return index;
  }
  fail(ErrorCode::usage, "--device ", quoted(device), ": use auto, cpu, cuda or cuda:N");
}

}  // namespace

Placement choose_placement(const std::string& device, const std::string& dtype) {
  Placement cpu{"cpu", settle_dtype(dtype, false), ""};
  if (device == "cpu") return cpu;
  const bool automatic = device == "auto";
  if (!automatic && device.rfind("cuda", 0) != 0)
    fail(ErrorCode::usage, "--device ", quoted(device), ": use auto, cpu, cuda or cuda:N");
  const int index = automatic ? 0 : gpu_index(device);

  const CudaDevices found = cuda_devices();
  std::string missing = found.devices.empty() ? found.why_none : "";
  if (missing.empty() && index >= static_cast<int>(found.devices.size()))
    missing = str("there are only ", found.devices.size(), " GPUs");
  if (missing.empty()) missing = open_torch_cuda();
  if (missing.empty()) {
    // Kernels are started on the current device, also those that work on what a run left behind.
    c10::impl::VirtualGuardImpl(c10::kCUDA)
        .setDevice(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)));
    return {str("cuda:", index), settle_dtype(dtype, true), found.devices[index].name};
  }
  if (!automatic) fail(ErrorCode::resource, "--device ", device, ": no GPU can be used: ", missing);
  return {"cpu", cpu.dtype, "no GPU: " + missing};
}

std::string device_text(const Placement& placement) {
  return placement.because.empty()
             ? placement.device
             : str(placement.device, " (", printable(placement.because, 200), ")");
}

void use_threads(int threads) {
  if (threads > 0) set_thread_count(threads);
  at::set_num_threads(thread_count());
  // One set of threads for LibTorch and for our kernels: two would fight for the cores.
  set_thread_runner([](int workers, const std::function<void(int)>& fn) {
#pragma omp parallel num_threads(workers)
    fn(omp_get_thread_num());
  });
}

}  // namespace kvatlas::capture
