# At install: writes anyhal/_contents.json, what this build holds and for what it was made.
# SPDX-License-Identifier: Apache-2.0
# Set by CMakeLists.txt: VERSION, MACHINE, COMPILER, OLDEST_GLIBC, and CODE_<backend>, the targets of
# its machine code. A file beside the library, such as compiled kernels, is listed as it lies there.
file(REAL_PATH "${CMAKE_INSTALL_PREFIX}/anyhal" root)
# What each manifest names: a library, or the file of a chip in Python.
file(GLOB manifests RELATIVE "${root}" "${root}/backends/*/backend.toml")
list(SORT manifests)
set(libraries "")
foreach(manifest ${manifests})
  file(STRINGS "${root}/${manifest}" named REGEX "^(library|python) = " LIMIT_COUNT 1)
  string(REGEX REPLACE "^[a-z]+ = \"([^\"]*)\".*$" "\\1" named "${named}")
  get_filename_component(folder "${manifest}" DIRECTORY)
  if(EXISTS "${root}/${folder}/${named}")
    list(APPEND libraries "${folder}/${named}")
  endif()
endforeach()
set(rows "")
foreach(library ${libraries})
  get_filename_component(folder "${library}" DIRECTORY)
  get_filename_component(name "${folder}" NAME)
  file(SHA256 "${root}/${library}" hash)
  file(SIZE "${root}/${library}" bytes)
  file(GLOB_RECURSE beside RELATIVE "${root}/${folder}" "${root}/${folder}/*")
  list(REMOVE_ITEM beside backend.toml)
  list(FILTER beside EXCLUDE REGEX "\\.so$|\\.pyc$")
  get_filename_component(file "${library}" NAME)
  list(REMOVE_ITEM beside "${file}")
  list(SORT beside)
  set(code ${CODE_${name}})
  foreach(part code beside)
    list(JOIN ${part} "\", \"" ${part})
    if(NOT ${part} STREQUAL "")
      set(${part} "\"${${part}}\"")
    endif()
  endforeach()
  list(APPEND rows "    \"${name}\": {\"library\": \"${library}\", \"sha256\": \"${hash}\", \
\"bytes\": ${bytes}, \"code\": [${code}], \"files\": [${beside}]}")
endforeach()
list(JOIN rows ",\n" rows)
file(WRITE "${root}/_contents.json" "{
  \"schema\": 1,
  \"version\": \"${VERSION}\",
  \"machine\": \"${MACHINE}\",
  \"compiler\": \"${COMPILER}\",
  \"oldest_glibc\": \"${OLDEST_GLIBC}\",
  \"backends\": {
${rows}
  }
}
")
