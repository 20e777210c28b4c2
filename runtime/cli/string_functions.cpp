// std::string's functions, optimised. Units that are compiled at -O0 make copies of them too, and
// the linker takes the first copy of each for the whole program: this file's, which it links first.
#include <string>

template class std::basic_string<char>;
