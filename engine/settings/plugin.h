// Plug-ins: formula files that are compiled separately and register their components in a running
// program. The compiler call writes a mark into each (engine/settings/plugin_mark.h), so that one
// built for another version is rejected before any of its code runs.
#pragma once

#include <string>
#include <vector>

namespace orrery {

// Returns the mark of plug-ins for this library: version and fingerprint of the headers.
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
std::string seal_of(const std::string& path);  // FILE.so.sha256

// Writes size and SHA-256 of a new plug-in next to it, as FILE.so.sha256, in the format of
// sha256sum -c. load_plugin requires this file.
void seal_plugin(const std::string& path);

// Registers the contents of a plug-in and returns the SHA-256 of its file. Throws if the file is
// missing, is not a plug-in, is for another version or is not the sealed one. Throws later if a
// name is taken or a symbol is missing: the other errors are found before any of its code runs.
// The checked bytes are the loaded bytes: a sealed copy in memory. Loading the same file again
// changes nothing. A plug-in stays loaded until the program ends. It is code, and can do
// anything that the program can.
std::string load_plugin(const std::string& path);

namespace detail {
// Stores the reason why a registry rejects an entry of a plug-in that is being loaded, because no
// exception may leave its static objects. Returns false if no plug-in is being loaded.
bool refuse_in_plugin(const std::string& reason);
}  // namespace detail

}  // namespace orrery
