# tigon_folder(NAME MAY folder... [LINK target...])
# One object library per folder of src. It sees include/tigon and, of src, itself and the folders
# named after MAY, and no other: an include that breaks the architecture does not compile.
#
# The headers of a folder are reached as "folder/file.h" through a directory of links that holds
# the allowed folders alone.
function(tigon_folder name)
  cmake_parse_arguments(ARG "" "" "MAY;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  if(TIGON_CUDA)
    file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cu)
    list(APPEND sources ${cuda_sources})
  endif()
  set(view ${CMAKE_CURRENT_BINARY_DIR}/view/${name})
  file(MAKE_DIRECTORY ${view})
  foreach(folder ${name} ${ARG_MAY})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${folder} ${view}/${folder} SYMBOLIC)
  endforeach()
  add_library(tigon_${name} OBJECT ${sources})
  target_include_directories(tigon_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${view})
  target_link_libraries(tigon_${name} PRIVATE tigon_flags ${ARG_LINK})
endfunction()
