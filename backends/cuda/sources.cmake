# Writes the kernels' sources as C++ strings, for NVRTC at run time.
# SPDX-License-Identifier: Apache-2.0
set(text "// Made by sources.cmake from kernels/. SPDX-License-Identifier: Apache-2.0\n")
string(APPEND text "#include \"sources.h\"\nnamespace hal::cuda {\n")
string(APPEND text "const Source kSources[] = {\n")
function(add name file)
  file(READ ${file} content)
  string(APPEND text "{\"${name}\", R\"HAL(${content})HAL\"},\n")
  set(text "${text}" PARENT_SCOPE)
endfunction()
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  add(${name} ${file})
endforeach()
add(anyhal/ops.h ${OPS})
# NVRTC has no <stdint.h>.
string(APPEND text "{\"stdint.h\", \"typedef signed char int8_t; typedef short int16_t; \"
\"typedef int int32_t; typedef long long int64_t; typedef unsigned char uint8_t; \"
\"typedef unsigned short uint16_t; typedef unsigned int uint32_t; \"
\"typedef unsigned long long uint64_t;\"},\n};\n"
"const int kSourceCount = sizeof kSources / sizeof kSources[0];\n}\n")
file(WRITE ${OUT} "${text}")
