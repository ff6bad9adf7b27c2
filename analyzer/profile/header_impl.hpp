// SPDX-License-Identifier: Apache-2.0
// How the header is stored in attributes of the root group, and how two headers are compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/hdf5_impl.hpp"
#include "analyzer/profile/profile.hpp"
#include "analyzer/profile/stored_object_impl.hpp"

namespace kvatlas::profile {

/// Bytes of a text in the file, at most.
inline constexpr std::int64_t kMostText = 64 << 20;

/// Error(internal) for a header that our own code must not make, such as one that names an array
/// twice.
void check_header(const Header& header);

void write_header(hid_t file, const Header& header);

/// Error(unreadable) names the attribute that is wrong, or the major version if it is newer.
Header read_header(const StoredObject& root);

/// What stands in the way of resuming (same_plan) or merging. Each entry is a clause such as
/// "capture.rows is 64 there and 32 here". Backends, names and minor versions may differ.
std::vector<std::string> differences(const Header& there, const Header& here, bool same_plan);
/// Adds the description of the tokens' texts to `to` if `from` has it.
void add_texts(const Header& from, Header& to);
/// The first few differences in one text.
std::string first_few(const std::vector<std::string>& clauses);

/// A JSON list of the descriptions, as the attribute `arrays` holds it.
std::string descriptions_text(const std::vector<Description>& arrays);

/// The description of the array of this name, or nullptr.
const Description* find_description(const Header& header, const std::string& name);

/// Reads the name of a type, such as "float32". Returns false if kvatlas has no such type.
bool parse_type(const std::string& name, Type& type);

}  // namespace kvatlas::profile
