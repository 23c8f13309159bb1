# libtigon for C++ programs without PyTorch, and the package that find_package(tigon) finds.
include(CMakePackageConfigHelpers)

add_library(tigon SHARED
  $<TARGET_OBJECTS:tigon_base> $<TARGET_OBJECTS:tigon_ops> $<TARGET_OBJECTS:tigon_cpu>
  $<TARGET_OBJECTS:tigon_host>)
add_library(tigon::tigon ALIAS tigon)
target_include_directories(tigon INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tigon INTERFACE cxx_std_20)
target_link_libraries(tigon PRIVATE tigon_flags hwy::hwy TBB::tbb DNNL::dnnl)
if(TIGON_CUDA)
  target_sources(tigon PRIVATE $<TARGET_OBJECTS:tigon_cuda>)
  target_link_libraries(tigon PRIVATE CUDA::cublasLt CUDA::cudart_static)
endif()
# Highway's small run-time part travels with the library, out of sight of other programs.
set_target_properties(tigon PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  INSTALL_RPATH "$ORIGIN/tigon" INSTALL_RPATH_USE_LINK_PATH ON)
install(FILES $<TARGET_FILE:hwy::hwy> RENAME $<TARGET_SONAME_FILE_NAME:hwy::hwy>
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/tigon COMPONENT cpp)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tigon)
install(TARGETS tigon EXPORT tigon COMPONENT cpp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tigon DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
install(EXPORT tigon NAMESPACE tigon:: FILE tigon-config.cmake DESTINATION ${package_dir} COMPONENT cpp)
write_basic_package_version_file(tigon-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tigon-config-version.cmake DESTINATION ${package_dir} COMPONENT cpp)
