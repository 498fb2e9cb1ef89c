// Facts about this build, which CMake writes to build_facts.cpp in the build folder. They are
// constants, so code that runs before main may read them.
#pragma once

namespace orrery::build_facts {

extern const char* const version;            // version of orrery, such as 0.1.0
extern const char* const compiler_flags;     // on one line
extern const char* const headers;            // fingerprint of the headers that a plug-in includes
extern const char* const source_folder;      // root of the source tree that this library was built from
extern const char* const plugin_compiler[];  // program and arguments, without files; ends with nullptr

}  // namespace orrery::build_facts
