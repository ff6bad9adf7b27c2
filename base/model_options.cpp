// SPDX-License-Identifier: Apache-2.0
#include "base/model_options.hpp"

#include "base/options.hpp"

namespace kvatlas {

CLI::Option* add_model_options(CLI::App& command, ModelOptions& options) {
  CLI::Option* model =
      add_option(command, "-m,--model", options.model, "PATH",
                 "GGUF file, Hugging Face folder, or org/name[@revision] of Hugging Face's cache");
  add_option(command, "--device", options.device, "DEVICE",
             "where the model runs: auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  add_option(
      command, "--dtype", options.dtype, "TYPE",
      "number type: auto (float32 on a CPU, bfloat16 on a GPU), float32, float16 or bfloat16")
      ->capture_default_str();
  add_number(command, "--threads", options.threads, "N", "CPU threads; 0: as many as cores", 0,
             4096);
  add_option(
      command, "--memory-budget", options.memory_budget, "SIZE",
      "memory that the run may take, such as 6GiB; a model that does not fit is streamed layer by "
      "layer (default: no limit)");
  return model;
}

}  // namespace kvatlas
