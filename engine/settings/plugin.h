// Plug-ins: formula files that are compiled separately and register their components in a running
// program. Each has a version mark (engine/settings/plugin_mark.h), so that one built for another
// version is rejected before any of its code runs, and a checksum file next to it.
#pragma once

#include <string>
#include <vector>

namespace orrery {

// Returns the version mark of plug-ins for this library: its version and a hash of its headers.
std::string plugin_mark();

// Returns the compiler and its arguments that make the plug-in `out` from `source`. `include` is
// the folder that contains engine/ and nn/. The arguments are for exec, not for a shell: a path may
// contain every byte except NUL.
std::vector<std::string> plugin_compiler(const std::string& include, const std::string& source, const std::string& out);
// Returns the folder with the headers, which contains engine/ and nn/. It is `given`, else the
// source tree of this library's build, else the installation. Throws if the headers are missing.
std::string plugin_include_folder(const std::string& given = "");

// Returns true for a plug-in of any version of orrery.
bool is_plugin(const std::string& path);
std::string checksum_path(const std::string& path);  // FILE.so.sha256

// Writes the checksum file of a new plug-in: its size and SHA-256, in the format of sha256sum -c.
// load_plugin requires this file.
void write_checksum(const std::string& path);

// Registers the contents of a plug-in and returns the SHA-256 of its file. Throws before any of its
// code runs if the file is missing, is not a plug-in, is for another version or differs from its
// checksum file; later if a name is taken or a symbol is missing. Loads a copy of the checked bytes
// that cannot change (sealed_copy.h). Loading the same file again changes nothing. A plug-in stays
// loaded until the program ends. It is code, and can do anything that the program can.
std::string load_plugin(const std::string& path);

namespace detail {
// Stores the reason why a registry rejects an entry of a plug-in that is being loaded, because no
// exception may leave its static objects. Returns false if no plug-in is being loaded.
bool refuse_in_plugin(const std::string& reason);
}  // namespace detail

}  // namespace orrery
