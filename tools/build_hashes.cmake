# At install: writes anyhal/_build_hashes.json, {path of a library or a Python chip under anyhal/: sha256}.
# SPDX-License-Identifier: Apache-2.0
file(REAL_PATH "${CMAKE_INSTALL_PREFIX}/anyhal" root)
file(GLOB libraries RELATIVE "${root}" "${root}/backends/*/*.so" "${root}/backends/*/*.py")
list(SORT libraries)
set(text "{")
set(separator "\n")
foreach(library ${libraries})
  file(SHA256 "${root}/${library}" hash)
  string(APPEND text "${separator}  \"${library}\": \"${hash}\"")
  set(separator ",\n")
endforeach()
file(WRITE "${root}/_build_hashes.json" "${text}\n}\n")
