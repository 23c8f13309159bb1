# tigon_sources(VARIABLE FOLDER)
# The sources of a folder, CUDA ones too where they are built, and the skeleton operator's.
function(tigon_sources variable folder)
  set(endings cpp)
  if(TIGON_CUDA)
    list(APPEND endings cu)
  endif()
  set(roots ${PROJECT_SOURCE_DIR})
  if(TIGON_SKELETON)
    list(APPEND roots ${PROJECT_SOURCE_DIR}/skeleton)
  endif()
  foreach(root ${roots})
    foreach(ending ${endings})
      file(GLOB found CONFIGURE_DEPENDS ${root}/${folder}/*.${ending})
      list(APPEND sources ${found})
    endforeach()
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# tigon_folder(NAME MAY folder... [LINK target...])
# One object library per folder of src. It sees include/tigon and, of src, itself and the folders
# named after MAY, and no other: an include that breaks the architecture does not compile.
#
# The headers of a folder are reached as "folder/file.h" through a directory of links that holds
# the allowed folders alone.
function(tigon_folder name)
  cmake_parse_arguments(ARG "" "" "MAY;LINK" ${ARGN})
  tigon_sources(sources src/${name})
  set(view ${CMAKE_CURRENT_BINARY_DIR}/view/${name})
  file(MAKE_DIRECTORY ${view})
  foreach(folder ${name} ${ARG_MAY})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${folder} ${view}/${folder} SYMBOLIC)
  endforeach()
  add_library(tigon_${name} OBJECT ${sources})
  target_include_directories(tigon_${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${view})
  if(TIGON_SKELETON)
    target_include_directories(tigon_${name} PRIVATE
      ${PROJECT_SOURCE_DIR}/skeleton/include ${PROJECT_SOURCE_DIR}/skeleton/src)
  endif()
  target_link_libraries(tigon_${name} PRIVATE tigon_flags ${ARG_LINK})
endfunction()
