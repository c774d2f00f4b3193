// cast: X to Y. FROM and TO are FLOAT, DOUBLE, SIGNED, UNSIGNED, BOOLEAN or BLOCK; 8-bit floats are
// FLOAT, packed integers SIGNED or UNSIGNED.
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

#if KIND_OF_X != KIND_BLOCK && !defined(Y_PACKED)
VALUE(Y) converted(VALUE(X) v) {
#if KIND_OF_Y == KIND_BOOLEAN
  return v != 0;
#elif KIND_OF_X == KIND_BOOLEAN
  return v;
#elif KIND_OF_Y == KIND_FLOAT && defined(NARROW)
  return sticky(v);
#elif (KIND_OF_Y == KIND_SIGNED || KIND_OF_Y == KIND_UNSIGNED) && \
    (KIND_OF_X == KIND_FLOAT || KIND_OF_X == KIND_DOUBLE)
  return v != v ? (VALUE(Y))0 : SATURATE(Y_TYPE, v);
#else
  return (VALUE(Y))v;
#endif
}
#endif

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

#elif defined(X_PACKED) || defined(Y_PACKED)
// Two integers of 4 bits share a byte of a dense row; an item writes whole bytes.
VALUE(X) element(In row, long column, long stride) {
#ifdef X_PACKED
  const int byte = row[column / 2], nibble = column % 2 == 0 ? byte & 15 : byte >> 4;
  return (VALUE(X))(KIND_OF_X == KIND_SIGNED ? (nibble ^ 8) - 8 : nibble);
#else
  return LOAD(X)(row, column * stride);
#endif
}

#ifdef Y_PACKED
int nibble_of(VALUE(X) v) {
#if KIND_OF_X == KIND_FLOAT || KIND_OF_X == KIND_DOUBLE
  const int least = KIND_OF_Y == KIND_SIGNED ? -8 : 0, most = KIND_OF_Y == KIND_SIGNED ? 7 : 15;
  return v != v ? 0 : (v < least ? least : v > most ? most : (int)v) & 15;
#else
  return (int)v & 15;
#endif
}
#endif

// Walk: bytes of x or elements, of out likewise, over the outer dims; width: elements of a row.
__kernel void cast(In x, ulong x_at, Out out, ulong out_at, const Walk rows, ulong count,
                   long width, long x_stride, long out_stride) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
#ifdef Y_PACKED
  const long row = (long)(i / (ulong)(width / 2)), column = (long)(i % (ulong)(width / 2)) * 2;
#else
  const long row = (long)(i / (ulong)width), column = (long)(i % (ulong)width);
#endif
  In from = x + x_at + place(&rows, 0, row) * X_BYTES;
#ifdef Y_PACKED
  out[out_at + place(&rows, 1, row) + column / 2] =
      (uchar)(nibble_of(element(from, column, x_stride)) |
              nibble_of(element(from, column + 1, x_stride)) << 4);
#else
  STORE(Y)(out + out_at, place(&rows, 1, row) + column * out_stride,
           converted(element(from, column, x_stride)));
#endif
}

#else
__kernel void cast(In x, ulong x_at, Out out, ulong out_at, const Walk walk, ulong count) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  STORE(Y)(out + out_at, PLACE(walk, 1, i), converted(LOAD(X)(x + x_at, PLACE(walk, 0, i))));
}
#endif
