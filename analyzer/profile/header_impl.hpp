// SPDX-License-Identifier: Apache-2.0
// The header as attributes of the root, and what two headers differ in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/hdf5_impl.hpp"
#include "analyzer/profile/profile.hpp"

namespace kvatlas::profile {

/// Error(internal): what our own code may not hand over, such as an array's name twice.
void check_header(const Header& header);

void write_header(hid_t file, const Header& header);

/// Error(unreadable) naming the attribute; a newer major version is told by its number.
Header read_header(hid_t file, std::int64_t file_bytes);

/// What stands in the way of resuming (same_plan) or merging, a clause each: "capture.rows is 64
/// there and 32 here". Backend, names and versions below the major one may differ.
std::vector<std::string> differences(const Header& there, const Header& here, bool same_plan);
/// Describes the tokens' texts in `to` as well if `from` does.
void add_texts(const Header& from, Header& to);
/// The first few of them in one text.
std::string first_few(const std::vector<std::string>& clauses);

/// The description of that name; nullptr if there is none.
const Description* find_description(const Header& header, const std::string& name);

/// "float32" and so on; false if it is none of ours.
bool parse_type(const std::string& name, Type& type);

}  // namespace kvatlas::profile
