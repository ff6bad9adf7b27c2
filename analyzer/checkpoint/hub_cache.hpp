// SPDX-License-Identifier: Apache-2.0
// Models as people name them: what Hugging Face's tools have downloaded lies in one cache, by name.
#pragma once

#include <filesystem>
#include <string>

namespace kvatlas::model {

/// The file or folder that a model is read from. What is there is taken as it is. "org/name", and
/// "org/name@revision" with a branch, a tag or a commit, is looked up in the cache of Hugging
/// Face's tools: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
/// ~/.cache/huggingface/hub. A snapshot that holds one GGUF file and no config.json is that file.
/// What is not there may be a model of LM Studio's, and "name:tag" one of Ollama's
/// (app_models.hpp). Nothing is ever downloaded: Error(usage) says the one command that would.
std::filesystem::path found_model(const std::filesystem::path& given);

/// What a model in this folder is called if it does not say so itself: the folder's name, or
/// "org/name" of a snapshot in that cache.
std::string name_of_folder(const std::filesystem::path& folder);

}  // namespace kvatlas::model
