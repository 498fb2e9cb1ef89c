# Embeds the files of `orrery report` in a source file, because an installed program has no source
# folder. Runs at configure time; CMake reconfigures if one of the files changes.

# orrery_embed_report(OUTPUT): writes the definitions for examples/orrery/page/report_page.h.
function(orrery_embed_report output)
  set(folder "${PROJECT_SOURCE_DIR}/examples/orrery/page")
  file(GLOB scripts CONFIGURE_DEPENDS "${folder}/script/*.js")
  file(GLOB heads CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/nn/*/*.cpp" "${PROJECT_SOURCE_DIR}/nn/*/*.h")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}/page.html" "${folder}/style.css" ${scripts}
               ${heads})
  set(code "// Written by examples/orrery/page/embed.cmake.\n#include \"examples/orrery/page/report_page.h\"\n\n")
  string(APPEND code "namespace orrery::program {\n\n")

  file(READ "${folder}/page.html" text)
  string(APPEND code "const std::string_view page_html = R\"orrery(${text})orrery\";\n")
  file(READ "${folder}/style.css" text)
  string(APPEND code "const std::string_view page_style = R\"orrery(${text})orrery\";\n")
  string(APPEND code "const std::string_view page_script =")
  foreach(file IN LISTS scripts)  # sorted by name
    file(READ "${file}" text)
    string(APPEND code " R\"orrery(${text})orrery\"")
  endforeach()
  string(APPEND code ";\n")

  # Reads the comment at the head of a file; a header follows its source: adamw.cpp, adamw.h.
  set(all "")
  foreach(file IN LISTS heads)
    file(READ "${file}" text)
    string(REGEX MATCH "^(//[^\n]*\n)+" head "${text}")
    if(head STREQUAL "")
      continue()
    endif()
    string(REGEX REPLACE "(^|\n)// ?" "\\1" head "${head}")
    file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}/nn" "${file}")
    string(REGEX REPLACE "\\.(cpp|h)$" "" key "${name}")
    string(MAKE_C_IDENTIFIER "head_of_${key}" variable)
    if(NOT DEFINED ${variable})
      list(APPEND all "${key}")
      set(${variable} "${head}")
    else()
      string(APPEND ${variable} "\n${head}")
    endif()
  endforeach()
  string(APPEND code "const std::map<std::string_view, std::string_view> file_heads = {\n")
  foreach(key IN LISTS all)
    string(MAKE_C_IDENTIFIER "head_of_${key}" variable)
    string(APPEND code "{\"${key}\", R\"orrery(${${variable}})orrery\"},\n")
  endforeach()
  string(APPEND code "};\n\n}  // namespace orrery::program\n")

  file(WRITE "${output}.new" "${code}")
  configure_file("${output}.new" "${output}" COPYONLY)  # keeps the time of an unchanged file
endfunction()
