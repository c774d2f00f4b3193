// cast: X to Y. FROM and TO are FLOAT, DOUBLE, SIGNED, UNSIGNED, BOOLEAN or BLOCK.
// SPDX-License-Identifier: Apache-2.0
#define KIND_FLOAT 1
#define KIND_DOUBLE 2
#define KIND_SIGNED 3
#define KIND_UNSIGNED 4
#define KIND_BOOLEAN 5
#define KIND_BLOCK 6
#define KIND_OF_X JOIN(KIND_, FROM)
#define KIND_OF_Y JOIN(KIND_, TO)

// The value as an f32 that rounds once to a 16-bit float: cut off, the last bit remembers the rest.
#if KIND_OF_X == KIND_DOUBLE
float sticky(double v) {
  const float cut = convert_float_rtz(v);
  return v == v && (double)cut != v ? as_float(as_uint(cut) | 1u) : cut;
}
#elif KIND_OF_X == KIND_SIGNED
float sticky(long v) {
  const float cut = convert_float_rtz(v);
  return convert_long_rtz(cut) != v ? as_float(as_uint(cut) | 1u) : cut;
}
#elif KIND_OF_X == KIND_UNSIGNED
float sticky(ulong v) {
  const float cut = convert_float_rtz(v);
  return convert_ulong_rtz(cut) != v ? as_float(as_uint(cut) | 1u) : cut;
}
#else
float sticky(float v) { return v; }
#endif

#define SATURATE(T, v) JOIN(JOIN(convert_, T), _sat_rtz)(v)

#if KIND_OF_X == KIND_BLOCK
// Blocks decode to f32; the exact value has more digits only for q4_1 and q4_k.
__kernel void cast(In x, ulong x_at, Out out, ulong out_at, const Walk rows, ulong count,
                   long width, long out_stride) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const long row = (long)(i / (ulong)width), column = (long)(i % (ulong)width);
  const long block = place(&rows, 0, row) + column / BLOCK_ELEMENTS;
  STORE(Y)(out + out_at, place(&rows, 1, row) + column * out_stride,
           DECODE(x + x_at + block * BLOCK_BYTES, column % BLOCK_ELEMENTS));
}
#else
__kernel void cast(In x, ulong x_at, Out out, ulong out_at, const Walk walk, ulong count) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const VALUE(X) v = LOAD(X)(x + x_at, PLACE(walk, 0, i));
#if KIND_OF_Y == KIND_BOOLEAN
  const uchar result = v != 0;
#elif KIND_OF_X == KIND_BOOLEAN
  const VALUE(Y) result = v;
#elif KIND_OF_Y == KIND_FLOAT && defined(NARROW)
  const float result = sticky(v);
#elif KIND_OF_Y == KIND_SIGNED || KIND_OF_Y == KIND_UNSIGNED
#if KIND_OF_X == KIND_FLOAT || KIND_OF_X == KIND_DOUBLE
  const VALUE(Y) result = v != v ? (VALUE(Y))0 : SATURATE(Y_TYPE, v);
#else
  const VALUE(Y) result = (VALUE(Y))v;
#endif
#elif KIND_OF_Y == KIND_DOUBLE
  const double result = v;
#else
  const float result = v;
#endif
  STORE(Y)(out + out_at, PLACE(walk, 1, i), result);
}
#endif
