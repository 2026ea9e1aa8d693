// Which version a library says that it is: that of NVIDIA's whose functions its table names.
#pragma once

namespace gpupool::libraries {

struct Version {
  int major, minor, patch;

  /// As most libraries say it in one number.
  [[nodiscard]] constexpr int number() const { return major * 1000 + minor * 100 + patch; }
};

/// libraryPropertyType: 0 major, 1 minor, 2 patch level. False: no such property, or nowhere to put it.
inline bool read_property(const Version& version, int property, int* value) {
  const int values[] = {version.major, version.minor, version.patch};
  if (value == nullptr || property < 0 || property > 2) return false;
  *value = values[property];
  return true;
}

/// False: nowhere to put it.
inline bool read_version(const Version& version, int* value) {
  if (value == nullptr) return false;
  *value = version.number();
  return true;
}

}  // namespace gpupool::libraries
