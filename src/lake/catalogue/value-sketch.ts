/**
 * How many different values there are, from two bitmaps of 320 bytes together, which are merged by OR: that of some rows
 * and that of others make that of all. The first takes each value by one of its bits: nearly exact up to some hundreds.
 * The second is that of Flajolet and Martin (PCSA), within about a tenth for any number.
 */
const fewBits = 1024;
const buckets = 64;
const levels = 24;
/** While so many bits of the first are free, it is the better of the two. */
const fewestFree = 100;

/** SQL of the hash of a value that the bitmaps are made of: one for all versions of the engine. */
export const valueHashSql = (value: string): string => `md5_number_lower(${value})`;

/** SQL of the two bitmaps over a group's values, by their hashes: BLOBs named `few` and `many`. */
export function sketchSql(hash: string): string {
  const rest = `CAST(${hash} >> 16 AS BIGINT)`;
  // The number of zeros at the end; of a zero itself, more than there are levels.
  const level = `least(CASE WHEN ${rest} = 0 THEN ${levels} ELSE bit_count(xor(${rest}, ${rest} - 1)) - 1 END, ${levels - 1})`;
  return `CAST(bitstring_agg(CAST(${hash} % ${fewBits} AS INTEGER), 0, ${fewBits - 1}) AS BLOB) AS few,
    CAST(bitstring_agg(CAST((${hash} // ${fewBits}) % ${buckets} * ${levels} + ${level} AS INTEGER), 0, ${buckets * levels - 1}) AS BLOB) AS many`;
}

/** SQL of two bitmaps merged over a group. */
export const mergedSketchSql = 'bit_or(few::BIT) AS few, bit_or(many::BIT) AS many';

/** SQL of the number of different values, from merged bitmaps. */
export const estimateSql = `CAST(CASE
    WHEN ${fewBits} - bit_count(few) > ${fewestFree} THEN round(-${fewBits} * ln((${fewBits} - bit_count(few)) / ${fewBits}))
    ELSE round(${buckets} / 0.77351 * power(2, list_sum(list_transform(range(${buckets}),
      lambda i : strpos(substr(many::VARCHAR, CAST(i * ${levels} + 1 AS BIGINT), ${levels}) || '0', '0') - 1)) / ${buckets}))
  END AS BIGINT)`;
