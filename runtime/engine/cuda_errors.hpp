// Conversion of libtorch's CUDA errors to Error.
#pragma once

#include <exception>
#include <string>

#include "base/error.hpp"

namespace sluice {

// Calls body() and converts exceptions to Error with the text "what: first line of the message".
// The other lines of libtorch's messages are a stack trace. Passes Error on unchanged.
template <class Body>
auto translated(const std::string& what, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error(what + ": " + text.substr(0, text.find('\n')));
  }
}

}  // namespace sluice
