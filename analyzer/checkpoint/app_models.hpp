// SPDX-License-Identifier: Apache-2.0
// Models that Ollama and LM Studio have downloaded, by the names that these give them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace kvatlas::model {

/// "ollama:llama3.2:1b" and "lmstudio:org/name" (or "org/name/file.gguf") are looked up in the
/// folders of these programs, and Error(usage) says so if they are not there. "llama3.2:1b" is
/// taken where Ollama has it. None for other names.
std::optional<std::filesystem::path> model_of_app(const std::string& name);

/// The model of that name in LM Studio's folder, ~/.lmstudio/models: a GGUF file, or a folder that
/// has a config.json; none if there is none. Error(usage) lists the files where there are several.
std::optional<std::filesystem::path> lm_studio_model(const std::string& name);

}  // namespace kvatlas::model
