// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/app_models.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/next_step.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"

namespace kvatlas::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOllama = "ollama:", kLmStudio = "lmstudio:";
constexpr std::size_t kLargestManifest = 1 << 20;
constexpr const char* kWeights = "application/vnd.ollama.image.model";

fs::path variable(const char* name) {
  const char* value = std::getenv(name);
  return {value ? value : ""};
}

/// Names of folders and a file below another, none of which leads out of it.
bool is_below(std::string_view path) {
  const auto is_name = [](std::string_view part) {
    return !part.empty() && part.front() != '.' && part.size() <= 200 &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ' ';
           });
  };
  for (;;) {
    const auto slash = path.find('/');
    if (!is_name(path.substr(0, slash))) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

fs::path ollama_folder() {
  if (const fs::path given = variable("OLLAMA_MODELS"); !given.empty()) return given;
  const fs::path own = variable("HOME") / ".ollama/models",
                 of_service = "/usr/share/ollama/.ollama/models";
  std::error_code error;
  return fs::exists(own, error) || !fs::exists(of_service, error) ? own : of_service;
}

/// Where Ollama keeps what [host/][namespace/]model[:tag] is made of; empty for what is no such
/// name.
fs::path manifest_of(const std::string& name) {
  const auto colon = name.find_last_of(":/");
  const bool has_tag = colon != name.npos && name[colon] == ':';
  std::string model = has_tag ? name.substr(0, colon) : name;
  const std::string tag = has_tag ? name.substr(colon + 1) : "latest";
  const auto slashes = std::count(model.begin(), model.end(), '/');
  if (slashes == 0) model = "library/" + model;
  if (slashes < 2) model = "registry.ollama.ai/" + model;
  if (slashes > 2 || !is_below(model) || !is_below(tag) || tag.find('/') != tag.npos) return {};
  return ollama_folder() / "manifests" / model / tag;
}

/// The file of weights that a manifest names.
fs::path weights_of(const fs::path& manifest) {
  return in_context(printable(manifest.string(), 400), [&]() -> fs::path {
    const auto json = parse_json(read_text_file(manifest, kLargestManifest));
    const auto layers =
        json.is_object() ? json.value("layers", nlohmann::json()) : nlohmann::json();
    std::vector<std::string> digests;
    for (const auto& layer : layers)
      if (layer.is_object() && layer.contains("mediaType") && layer["mediaType"] == kWeights &&
          layer.contains("digest") && layer["digest"].is_string())
        digests.push_back(layer["digest"].get<std::string>());
    if (digests.size() != 1)
      fail(ErrorCode::unsupported, "names ", digests.size(),
           " files of weights, expected one GGUF file");
    std::string file = digests.front();
    const auto is_digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
    if (file.size() != 71 || !file.starts_with("sha256:") ||
        !std::all_of(file.begin() + 7, file.end(), is_digit))
      fail(ErrorCode::unreadable, quoted(file, 100), " is no digest of SHA-256");
    std::replace(file.begin(), file.end(), ':', '-');
    return ollama_folder() / "blobs" / file;
  });
}

std::optional<fs::path> ollama_model(const std::string& name) {
  const fs::path manifest = manifest_of(name);
  std::error_code error;
  if (manifest.empty() || !fs::is_regular_file(manifest, error)) return std::nullopt;
  return weights_of(manifest);
}

fs::path lm_studio_folder() { return variable("HOME") / ".lmstudio/models"; }

[[noreturn]] void refuse(const std::string& name, const char* whose, const fs::path& folder,
                         const std::string& command) {
  fail(ErrorCode::usage, whose, " folder ", printable(folder.string(), 400), " has no model ",
       quoted(name, 400), ", and nothing is downloaded: '", printable(command, 400),
       "' would fetch it");
}

}  // namespace

std::optional<fs::path> lm_studio_model(const std::string& name) {
  const fs::path place = lm_studio_folder() / name;
  std::error_code error;
  if (variable("HOME").empty() || !is_below(name) || !fs::exists(place, error)) return std::nullopt;
  if (!fs::is_directory(place, error)) return place;
  std::vector<fs::path> files;
  for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error))
    // "mmproj" files hold what turns pictures into tokens.
    if (at->path().extension() == ".gguf" && !at->path().filename().string().starts_with("mmproj"))
      files.push_back(at->path());
  std::sort(files.begin(), files.end());
  if (files.size() == 1) return files.front();
  if (files.empty())
    return fs::exists(place / "config.json", error) ? std::optional(place) : std::nullopt;
  fail(ErrorCode::usage, printable(place.string(), 400), ": has ", files.size(),
       " models: name one, as ", kLmStudio, printable(name, 400), "/",
       printable(files.front().filename().string(), 200));
}

std::optional<fs::path> model_of_app(const std::string& name) {
  if (name.starts_with(kOllama)) {
    const std::string own = name.substr(kOllama.size());
    if (auto found = ollama_model(own)) return found;
    refuse(own, "Ollama's", ollama_folder(), "ollama pull " + own);
  }
  if (name.starts_with(kLmStudio)) {
    const std::string own = name.substr(kLmStudio.size());
    if (auto found = lm_studio_model(own)) return found;
    refuse(own, "LM Studio's", lm_studio_folder(), "lms get " + own);
  }
  return name.find(':') == name.npos ? std::nullopt : ollama_model(name);
}

}  // namespace kvatlas::model
