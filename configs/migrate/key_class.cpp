#include "configs/migrate/key_class.hpp"

namespace sluice::migrate {

std::string_view class_name(KeyClass kind) {
  switch (kind) {
    case KeyClass::kMapped:
      return "mapped";
    case KeyClass::kChanged:
      return "changed";
    case KeyClass::kNotNeeded:
      return "not_needed";
    case KeyClass::kRefused:
      return "refused_unless_default";
    case KeyClass::kRemoved:
      return "removed_upstream";
    case KeyClass::kIgnored:
      break;
  }
  return "ignored_upstream";
}

}  // namespace sluice::migrate
