// SPDX-License-Identifier: Apache-2.0
#include "base/model_options.hpp"

#include <CLI/CLI.hpp>

namespace kvatlas {

CLI::Option* add_model_options(CLI::App& command, ModelOptions& options) {
  CLI::Option* model =
      command.add_option("-m,--model", options.model, "GGUF file or Hugging Face folder")
          ->type_name("PATH");
  command.add_option("--device", options.device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str()
      ->type_name("DEVICE");
  command
      .add_option("--dtype", options.dtype,
                  "auto (float32 on a CPU, bfloat16 on a GPU), float32, float16 or bfloat16")
      ->capture_default_str()
      ->type_name("TYPE");
  command.add_option("--threads", options.threads, "CPU threads; 0 takes all cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096))
      ->type_name("N");
  command
      .add_option(
          "--memory-budget", options.memory_budget,
          "memory the run may take, as 6GiB; a model that does not fit is streamed layer by "
          "layer (default: no limit)")
      ->type_name("SIZE");
  return model;
}

}  // namespace kvatlas
