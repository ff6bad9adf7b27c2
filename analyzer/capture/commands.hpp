// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace kvatlas {

inline constexpr char kProfileSummary[] =
    "Run a model over prompts and write what its attention does to a profile";
inline constexpr char kGenerateSummary[] =
    "Continue prompts greedily, to see that a model loads and computes correctly";

/// Adds `kvatlas profile`, which runs a model over prompts and writes to a file what its attention
/// does.
void add_profile_command(CLI::App& app);

/// Adds `kvatlas generate`, which continues prompts greedily.
void add_generate_command(CLI::App& app);

}  // namespace kvatlas
