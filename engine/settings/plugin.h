// Plug-ins: formula files compiled on their own and loaded into a running program, where they register what they
// define.  A plug-in carries a mark, written by the compiler call that made it (engine/settings/plugin_mark.h), so that
// one built for another version is refused before any of its code runs.
#pragma once

#include <string>
#include <vector>

namespace orrery {

// What a plug-in made for this library must carry: version, and a fingerprint of the library's headers.
std::string plugin_mark();

// The compiler and its arguments that make a plug-in `out` of `source`. `include` is the folder
// that holds engine/ and nn/. They are arguments of an exec call, not text for a shell: a path may
// hold every byte except NUL.
std::vector<std::string> plugin_compiler(const std::string& include, const std::string& source, const std::string& out);
// The folder with the headers, which holds engine/ and nn/: the one that is given, else that of the source tree from
// which this library was built, else that of the installation.  An Error if they are not there.
std::string plugin_include_folder(const std::string& given = "");

// Whether the file is a plug-in of some version of orrery.
bool is_plugin(const std::string& path);
std::string seal_of(const std::string& path);  // FILE.so.sha256

// Writes size and SHA-256 of a plug-in that was just compiled beside it, as FILE.so.sha256, in the form that
// sha256sum -c reads.  load_plugin wants it.
void seal_plugin(const std::string& path);

// Registers what the plug-in defines and returns the SHA-256 of its file. Errors, in sentences: no
// such file, no plug-in, one for another version, one that is not the file that was sealed, a name
// that is taken, a symbol that is missing. All but the last two are found before any of its code
// runs, and the bytes that were checked are the bytes that are loaded: a sealed copy in memory. The
// same file a second time changes nothing. A plug-in stays loaded until the program ends. It is
// code, and can do whatever the program can.
std::string load_plugin(const std::string& path);

namespace detail {
// While a plug-in is loaded its static objects run, out of which no exception may come: a registry that refuses an
// entry leaves the reason here.  False: no plug-in is being loaded.
bool refuse_in_plugin(const std::string& reason);
}  // namespace detail

}  // namespace orrery
