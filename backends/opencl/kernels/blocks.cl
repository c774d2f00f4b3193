// Block formats of GGUF files: element e of a block, as DECODED; exact but for one rounding.
// SPDX-License-Identifier: Apache-2.0
typedef DECODED Decoded;

Decoded half_at(In p) { return (Decoded)vload_half(0, (__global const half*)p); }

// 16 bytes of nibbles: the low ones are elements 0 to 15, the high ones 16 to 31.
int nibble_of_32(In p, int e) {
  const int byte = p[e & 15];
  return e < 16 ? byte & 15 : byte >> 4;
}

Decoded decode_Q8_0(In p, int e) { return half_at(p) * (Decoded)(char)p[2 + e]; }
Decoded decode_Q4_0(In p, int e) { return half_at(p) * (Decoded)(nibble_of_32(p + 2, e) - 8); }
Decoded decode_Q4_1(In p, int e) {
  return half_at(p) * (Decoded)nibble_of_32(p + 4, e) + half_at(p + 2);
}

// Groups 0 to 3 have a byte each; 4 to 7 have a nibble, and its upper two bits above those.
Decoded decode_Q4_K(In p, int e) {
  In packed = p + 4;
  const int group = e / 32, at = group / 2 * 32 + e % 32;
  const int scale =
      group < 4 ? packed[group] & 63 : (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
  const int minimum = group < 4 ? packed[group + 4] & 63
                                : packed[group + 4] >> 4 | packed[group] >> 6 << 4;
  const int q = group % 2 == 0 ? p[16 + at] & 15 : p[16 + at] >> 4;
  return half_at(p) * (Decoded)scale * (Decoded)q - half_at(p + 2) * (Decoded)minimum;
}

// Two halves of 128; a quarter of one takes its nibbles from the low or the high side of 32 bytes.
Decoded decode_Q6_K(In p, int e) {
  const int part = e / 128, quarter = e % 128 / 32, at = e % 32;
  const int byte = p[64 * part + quarter % 2 * 32 + at];
  const int top = p[128 + 32 * part + at] >> 2 * quarter & 3;
  const int q = (quarter < 2 ? byte & 15 : byte >> 4) | top << 4;
  return half_at(p + 208) * (Decoded)(char)p[192 + e / 16] * (Decoded)(q - 32);
}
