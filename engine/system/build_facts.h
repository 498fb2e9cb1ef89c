// Facts about this build that CMake writes into build_facts.cpp in the build folder. They are
// constants, so that code that runs before main may read them.
#pragma once

namespace orrery::build_facts {

extern const char* const version;            // of orrery, such as 0.1.0
extern const char* const compiler_flags;     // as one line
extern const char* const headers;            // a fingerprint of the headers that a plug-in includes
extern const char* const source_folder;      // of the tree from which this library was built
extern const char* const plugin_compiler[];  // program and arguments, without files; nullptr ends them

}  // namespace orrery::build_facts
