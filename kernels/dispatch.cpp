// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include <hwy/highway.h>

#include "base/error.hpp"
#include "kernels/cuda_support.hpp"

namespace kvatlas::kernels {
namespace {

constexpr std::array<const char*, 4> kBackendNames = {"automatic", "reference", "cpu", "cuda"};

std::string target_name(std::int64_t target) {
  std::string name = hwy::TargetName(target);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::int64_t> compiled_targets() {
  std::vector<std::int64_t> targets;  // a lower bit is a better target
  for (std::int64_t left = HWY_TARGETS; left != 0; left &= left - 1)
    targets.push_back(left & ~(left - 1));
  return targets;
}

Backend backend_from_environment() {
  const char* text = std::getenv("KVATLAS_BACKEND");
  if (text == nullptr || *text == '\0') return Backend::automatic;
  for (std::size_t i = 0; i < kBackendNames.size(); ++i)
    if (std::string_view(text) == kBackendNames[i]) return static_cast<Backend>(i);
  fail(ErrorCode::usage, "KVATLAS_BACKEND is ", quoted(text), ", expected one of ",
       list_str(kBackendNames));
}

}  // namespace

void obey_cpu_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* text = std::getenv("KVATLAS_CPU");
    if (text != nullptr && *text != '\0') in_context("KVATLAS_CPU", [&] { use_cpu_target(text); });
  });
}

std::optional<std::string> cuda_missing() {
  if constexpr (kHasCuda) {
    static const std::optional<std::string> problem = cuda::device_problem();
    return problem;
  } else {
    return "this build has no CUDA kernels (no nvcc was found, or KVATLAS_CUDA is OFF)";
  }
}

Backend choose(const Exec& exec, Memory memory) {
  Backend backend = exec.backend;
  if (backend == Backend::automatic) backend = backend_from_environment();
  if (backend == Backend::automatic)
    backend = memory == Memory::device ? Backend::cuda : Backend::cpu;
  const char* name = kBackendNames[static_cast<std::size_t>(backend)];
  if ((backend == Backend::cuda) != (memory == Memory::device))
    fail(ErrorCode::unsupported, "backend ", name, " was asked for, but the data lies in ",
         memory == Memory::device ? "device" : "host", " memory");
  if (backend == Backend::cuda) {
    if (const auto problem = cuda_missing())
      fail(ErrorCode::unsupported, "backend cuda cannot run here: ", *problem);
  }
  if (backend == Backend::cpu) obey_cpu_environment();
  return backend;
}

std::vector<std::string> cpu_targets() {
  // What the processor has is asked for once, before any target is disabled.
  static const std::int64_t runnable = [] {
    hwy::DisableTargets(0);
    return hwy::SupportedTargets();
  }();
  std::vector<std::string> names;
  for (const std::int64_t target : compiled_targets())
    if ((target & runnable) != 0) names.push_back(target_name(target));
  return names;
}

std::string cpu_target() {
  obey_cpu_environment();
  const std::int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  return target_name(usable & ~(usable - 1));
}

void use_cpu_target(const std::string& name) {
  const auto runnable = cpu_targets();
  if (name.empty()) return hwy::DisableTargets(0);
  for (const std::int64_t target : compiled_targets()) {
    if (target_name(target) != name) continue;
    if (std::find(runnable.begin(), runnable.end(), name) == runnable.end())
      fail(ErrorCode::unsupported, "this processor lacks instruction set ", name, ", it has ",
           list_str(runnable));
    return hwy::DisableTargets(~target);
  }
  fail(ErrorCode::usage, "unknown instruction set ", quoted(name), ", expected one of ",
       list_str(runnable));
}

}  // namespace kvatlas::kernels
