#include "runtime/data/corpus/repair/mojibake_patterns.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/data/corpus/repair/code_pages.hpp"

namespace sluice {
namespace {

// A set of characters that have one part in mojibake, as the inside of a character class.
struct CharacterSet {
  char name;
  const char* characters;
};

// clang-format off
constexpr std::array kSets{
  CharacterSet{'c',  // common everywhere
    R"(\x{A0}\x{AD}\x{B4}\x{B7}\x{2013}-\x{2015}\x{2019}\x{2026})"},
  CharacterSet{'1', R"(\x{80}-\x{9F})"},  // controls
  CharacterSet{'b',  // hardly ever meant
    R"(\x{A4}\x{A6}\x{A8}\x{AA}\x{AC}\x{AF}\x{B8}\x{BA}\x{192}\x{2C6}\x{2C7}\x{2D8}\x{2DB}\x{2DC}\x{2020}\x{2021})"
    R"(\x{2030}\x{2310}\x{25CA}\x{FFFD})"},
  CharacterSet{'w', R"(\x{A7}\x{B6})"},  // of law
  CharacterSet{'m', R"(\x{A2}\x{A3}\x{A5}\x{20A7}\x{20AC})"},  // money
  CharacterSet{'s',  // begins a quotation or a sentence
    R"(\x{A1}\x{A9}\x{AB}\x{BF}\x{384}\x{385}\x{2018}\x{201A}\x{201C}\x{201E}\x{2022}\x{2039}\x{F8FF})"},
  CharacterSet{'e', R"(\x{AE}\x{BB}\x{2DD}\x{201D}\x{203A}\x{2122})"},  // ends one
  CharacterSet{'n',  // of numbers
    R"(\x{B1}-\x{B3}\x{B5}\x{B9}\x{BC}-\x{BE}\x{D7}\x{F7}\x{2044}\x{2116}\x{2202}\x{2206}\x{220F}\x{2211}\x{221A})"
    R"(\x{221E}\x{2229}\x{222B}\x{2248}\x{2260}\x{2261}\x{2264}\x{2265})"},
  CharacterSet{'k',  // of faces made of characters
    R"(\x{B0}\x{D2}-\x{D6}\x{D9}-\x{DC}\x{F2}-\x{F6}\x{F8}-\x{FC}\x{14C}\x{150}\x{16A}\x{172})"},
  CharacterSet{'U',  // accented capitals
    R"(\x{C0}-\x{D1}\x{D8}\x{DC}\x{DD}\x{100}\x{102}\x{104}\x{106}\x{10C}\x{10E}\x{110}\x{112}\x{116}\x{118}\x{11A})"
    R"(\x{11E}\x{122}\x{12A}\x{130}\x{136}\x{139}\x{13B}\x{13D}\x{141}\x{143}\x{145}\x{147}\x{152}\x{158}\x{15A})"
    R"(\x{15E}\x{160}\x{162}\x{164}\x{16E}\x{170}\x{178}\x{179}\x{17B}\x{17D}\x{490})"},
  CharacterSet{'L',  // accented small letters
    R"(\x{DF}-\x{F1}\x{FC}\x{101}\x{103}\x{105}\x{107}\x{10D}\x{10F}\x{111}\x{113}\x{117}\x{119}\x{11B}\x{11F}\x{123})"
    R"(\x{12B}\x{12F}\x{137}\x{13A}\x{13C}\x{13E}\x{142}\x{153}\x{155}\x{15B}\x{15F}\x{161}\x{165}\x{17A}\x{17C})"
    R"(\x{17E}\x{491}\x{FB01}\x{FB02})"},
  CharacterSet{'V',  // capitals that may end a word
    R"(\x{DE}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}\x{38F}\x{391}-\x{3AB}\x{401}-\x{42F})"},
  CharacterSet{'v', R"(\x{3AC}-\x{3C9}\x{430}-\x{45F})"},  // small letters of Greek and Cyrillic
  CharacterSet{'x',  // boxes
    R"(\x{2502}\x{250C}\x{2510}\x{2518}\x{251C}\x{2524}\x{252C}\x{253C}\x{2550}-\x{256C}\x{2580}\x{2584}\x{2588})"
    R"(\x{258C}\x{2590}-\x{2593})"},
  CharacterSet{' ',  // white space
    R"(\x09-\x0D\x1C-\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"},
};

// Rules. "<be>" is a class of the sets b and e; "<e:xyz>" has the characters xyz besides.
constexpr const char* kUnlikely[] = {
  "<1>",
  "<bLUxsemnw><b>",
  "[a-zA-Z]<vV><b>",
  "<b><LUxsemnw>",
  "<Lvxemn><U>",
  "<xemn><L>",
  "<Lxe><m>",
  "< ><U><m>",
  "<Ux><nw>",
  "<LUxme><s><n>",
  "<LUmnxw><e><s>",
  "<mnx><s>",
  "[a-z]<U><sm>",
  "<x><k>",
  "<LUmnsew><x>",
  "<x><e>",
  R"(<LU><se>[\p{L}\p{N}_])",
  R"([\x{152}\x{153}][^A-Za-z])",
  R"(<U>\x{B0})",
  R"([\x{C2}\x{C3}\x{CE}\x{D0}]<se:\x{20AC}\x{153}\x{160}\x{161}\x{A2}\x{A3}\x{178}\x{17E}\x{A0}\x{AD}\x{AE}\x{A9}\x{B0}\x{B7}\x{BB}\x{2013}\x{2014}\x{B4}>)",
  R"(\x{D7}[\x{B2}\x{B3}])",
  // Arabic in Windows-1252, South Asian scripts
  R"((?:[\x{D8}\x{D9}]<cmbns:\x{178}\x{160}\x{AE}\x{B0}\x{B5}\x{BB}>){2})",
  R"(\x{E0}[\x{B2}\x{B5}\x{B9}\x{BC}\x{BD}\x{BE}])",
  // Mac Roman
  R"(\x{221A}[\x{B1}\x{2202}\x{2020}\x{2260}\x{AE}\x{2122}\x{B4}\x{2264}\x{2265}\x{A5}\x{B5}\x{F8}])",
  R"(\x{2248}[\x{B0}\x{A2}])",
  R"(\x{201A}\x{C4}[\x{EC}\x{EE}\x{EF}\x{F2}\x{F4}\x{FA}\x{F9}\x{FB}\x{2020}\x{B0}\x{A2}\x{3C0}])",
  R"(\x{201A}[\x{E2}\x{F3}][\x{E0}\x{E4}\x{B0}\x{EA}])",
  // Windows-1251
  R"(\x{432}\x{402})",
  R"([\x{412}\x{413}\x{420}\x{421}]<1bsem:\x{B0}\x{B5}>[\x{412}\x{413}\x{420}\x{421}])",
  R"(\x{413}\x{45E}\x{412}\x{402}\x{412}.[A-Za-z ])",
  // Windows-1252
  R"(\x{C3}[\x{A0}\x{A1}])",
  R"([a-z]< >?[\x{C3}\x{C2}] )",
  R"(^[\x{C3}\x{C2}] )",
  R"(<e:a-z.,?!>\x{C2}<se: >)",
  // Windows-1253, Windows-1257
  R"(\x{3B2}\x{20AC}[\x{2122}\x{A0}\x{386}\x{AD}\x{AE}\x{B0}])",
  R"([\x{392}\x{393}\x{39E}\x{39F}]<1bsem:\x{B0}>[\x{392}\x{393}\x{39E}\x{39F}])",
  R"(\x{101}\x{20AC})",
};
// clang-format on

std::string class_of(std::string_view sets) {
  std::string result = "[";
  const std::size_t colon = std::min(sets.find(':'), sets.size());
  for (const char name : sets.substr(0, colon)) {
    for (const CharacterSet& set : kSets) {
      if (set.name == name) result += set.characters;
    }
  }
  result += sets.substr(std::min(colon + 1, sets.size()));
  return result + "]";
}

std::string expression_of(std::string_view rule) {
  std::string result;
  while (!rule.empty()) {
    const std::size_t open = std::min(rule.find('<'), rule.size());
    result += rule.substr(0, open);
    rule.remove_prefix(open);
    if (rule.empty()) break;
    const std::size_t close = rule.find('>');
    result += class_of(rule.substr(1, close - 1));
    rule.remove_prefix(close + 1);
  }
  return result;
}

// The characters that the bytes stand for in Latin-1 and the Windows pages, inside of a class.
std::string readings(const std::vector<std::uint8_t>& bytes,
                     const std::set<char32_t>& without = {}) {
  std::set<char32_t> characters;
  for (std::size_t page = 0; page <= static_cast<std::size_t>(CodePage::kWindows1257); ++page) {
    for (const std::uint8_t byte : bytes) {
      characters.insert(decode_byte(static_cast<CodePage>(page), byte));
    }
  }
  std::string result;
  for (const char32_t c : characters) {
    std::array<char, 16> text{};
    std::snprintf(text.data(), text.size(), "\\x{%X}", static_cast<unsigned>(c));
    if (!without.contains(c)) result += text.data();
  }
  return result;
}

std::vector<std::uint8_t> byte_range(unsigned first, unsigned last) {
  std::vector<std::uint8_t> bytes;
  for (unsigned byte = first; byte <= last; ++byte)
    bytes.push_back(static_cast<std::uint8_t>(byte));
  return bytes;
}

}  // namespace

const Pattern& unlikely_characters() {
  static const Pattern kPattern(
      [] {
        std::string all;
        for (const char* rule : kUnlikely) {
          if (!all.empty()) all += '|';
          all += expression_of(rule);
        }
        return all;
      }(),
      Pattern::Over::kUtf8);
  return kPattern;
}

const Pattern& embedded_utf8() {
  static const Pattern kPattern(
      [] {
        const std::vector<std::uint8_t> continuations = byte_range(0x80, 0xBF);
        // Dashes, quotes, the bullet and the ellipsis also stand for themselves beside mojibake.
        const std::string strict =
            readings(continuations, {0x2013, 0x2014, 0x2015, 0x2018, 0x2019, 0x201A, 0x201C, 0x201D,
                                     0x201E, 0x2022, 0x2026});
        // A space may have been a no-break space.
        const std::string next = "[ " + readings(continuations) + "]";
        return "(?<![" + strict + "])(?:[" + readings(byte_range(0xC2, 0xDF)) + "]" + next + "|[" +
               readings(byte_range(0xE0, 0xEF)) + "]" + next + "{2}|[" + readings({0xF0, 0xF3}) +
               "]" + next + "{3})++";
      }(),
      Pattern::Over::kUtf8);
  return kPattern;
}

const Pattern& spaced_utf8() {
  // Sequences of three bytes below E2 take no space behind the first: A0 would mean rare scripts.
  static const Pattern kPattern(
      R"([\xC2\xC3\xC5\xCE\xD0\xD9] |[\xE2\xE3] [\x80-\x84\x86-\x9F\xA1-\xBF])"
      R"(|[\xE0-\xE3][\x80-\x84\x86-\x9F\xA1-\xBF] )"
      R"(|\xF0(?: [\x80-\xBF]{2}|[\x80-\xBF] [\x80-\xBF]|[\x80-\xBF]{2} ))",
      Pattern::Over::kBytes);
  return kPattern;
}

const Pattern& lossy_utf8() {
  static const Pattern kPattern(
      R"([\xC2-\xDF]\x1A|[\xC2\xC3]\?)"
      R"(|\xED[\xA0-\xAF][\x1A?]\xED[\xB0-\xBF][\x1A?\x80-\xBF])"
      R"(|\xED[\xA0-\xAF][\x1A?\x80-\xBF]\xED[\xB0-\xBF][\x1A?])"
      R"(|[\xE0-\xEF](?:[\x1A?][\x1A\x80-\xBF]|[\x1A\x80-\xBF][\x1A?]))"
      R"(|[\xF0-\xF4](?:[\x1A?][\x1A\x80-\xBF]{2}|[\x1A\x80-\xBF][\x1A?][\x1A\x80-\xBF])"
      R"(|[\x1A\x80-\xBF]{2}[\x1A?])|\x1A)",
      Pattern::Over::kBytes);
  return kPattern;
}

const Pattern& a_grave_word() {
  // Not before another space, nor in Portuguese "aquele", "aquela", "aquilo" and "as".
  static const Pattern kPattern(R"(\xC3 (?! |quele|quela|quilo|s ))", Pattern::Over::kBytes);
  return kPattern;
}

}  // namespace sluice
