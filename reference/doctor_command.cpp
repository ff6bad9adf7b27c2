// SPDX-License-Identifier: Apache-2.0
// `kvatlas doctor`: what this machine and this build have, and what that means.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/cuda_device.hpp"
#include "base/free_memory.hpp"
#include "base/json_text.hpp"
#include "base/parallel.hpp"
#include "base/plain_text.hpp"
#include "base/processor.hpp"
#include "base/str.hpp"
#include "base/surroundings.hpp"
#include "base/text_count.hpp"
#include "kernels/dispatch.hpp"
#include "reference/doctor.hpp"

namespace kvatlas::reference {
namespace {

namespace fs = std::filesystem;

/// What was found of one part, and what follows from it for whoever runs kvatlas.
struct Finding {
  std::string part, found, meaning;
};

Finding build_finding(const Build& build) {
  return {"build",
          str("kvatlas ", build.version, build.commit.empty() ? "" : ", commit " + build.commit,
              build.torch.empty() ? ", no LibTorch" : ", LibTorch " + build.torch,
              build.cuda.empty() ? ", no CUDA" : ", kernels of CUDA " + build.cuda),
          build.torch.empty()
              ? "profile, generate, evaluate, check and calibrate auto are missing: "
                "run ./dev setup and ./dev build"
              : "every command that runs a model is there"};
}

Finding processor_finding() {
  const Processor found = processor();
  const std::string bfloat16 = found.bfloat16();
  return {"processor",
          str(found.name, ", ", count_of(thread_count(), "core", "cores"), ", instructions ",
              kernels::cpu_target(), ", ", bfloat16.empty() ? "none" : bfloat16, " for bfloat16"),
          str("as many threads run; --threads, taskset and containers limit them. --dtype bfloat16 "
              "halves the memory of weights",
              bfloat16.empty() ? ", and is several times slower here" : "")};
}

Finding memory_finding() {
  const std::int64_t free = free_memory();
  const double billions = 0.8 * static_cast<double>(free) / 4e9;
  return {"memory", bytes_str(free) + " free",
          str("models of up to about ", fixed_text(billions, billions < 10 ? 1 : 0),
              " billion parameters stay in memory as float32; larger ones are read layer by layer "
              "(--memory-budget sets how much is taken)")};
}

Finding gpu_finding() {
  const CudaDevices found = cuda_devices();
  if (found.devices.empty())
    return {"GPU", "none: " + found.why_none, "models run on the processor"};
  return {"GPU",
          join(found.devices, "; ",
               [](const CudaDevice& device) {
                 return str(device.name, ", ", bytes_str(device.free_bytes), " free of ",
                            bytes_str(device.total_bytes), ", compute capability ", device.major,
                            ".", device.minor);
               }),
          "models run there unless --device cpu says otherwise"};
}

Finding viewer_finding() {
  std::error_code unknown;
  const auto program = program_folder() / kViewerProgram;
  if (!fs::exists(program, unknown))
    return {"viewer", "none beside this program",
            "view, render and report are missing: install Qt 6 (./dev setup) and run ./dev build"};
  if (const auto display = display_name(); !display.empty())
    return {"viewer", str(program.string(), ", display ", display), "view opens a window there"};
  return {"viewer", program.string() + ", no display",
          "view opens no window here; render draws one chart and report makes a page without one"};
}

Finding disk_finding() {
  std::error_code unknown;
  const auto here = fs::space(".", unknown);
  const std::int64_t free = unknown ? 0 : static_cast<std::int64_t>(here.available);
  return {"disk", bytes_str(free) + " free in this folder",
          free < (std::int64_t{1} << 30)
              ? "profiles with maps may need more: --map-samples 0 leaves maps out"
              : "profile says before it starts how large its file can be"};
}

std::vector<Finding> findings(const Build& build) {
  return {build_finding(build), processor_finding(), memory_finding(),
          gpu_finding(),        viewer_finding(),    disk_finding()};
}

}  // namespace

std::string version_text(const Build& build) {
  const std::vector<std::string> parts = {build.commit.empty() ? "" : "commit " + build.commit,
                                          build.torch.empty() ? "" : "LibTorch " + build.torch,
                                          build.cuda.empty() ? "" : "CUDA " + build.cuda};
  std::vector<std::string> known;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(known),
               [](const std::string& part) { return !part.empty(); });
  return "kvatlas " + build.version + (known.empty() ? "" : " (" + join(known) + ")");
}

void add_doctor_command(CLI::App& app, const Build& build) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Say what this machine and this build have, and what that means");
  const auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "print JSON");
  command->footer("Example:\n  kvatlas doctor");
  command->callback([as_json, build] {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& [part, found, meaning] : findings(build)) {
      if (*as_json)
        out.push_back({{"part", part}, {"found", found}, {"meaning", meaning}});
      else
        std::cout << row_text({{part, 9}, {found, 89}}) << row_text({{meaning + ".", 89}}, 11);
    }
    if (*as_json) std::cout << json_text(out, 2) << '\n';
  });
}

}  // namespace kvatlas::reference
